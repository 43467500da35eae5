// The listener's book of its connections. Any thread, under a mutex. Errors: texts.
#include "bus/registry.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lumen::bus {
namespace {

uint64_t read(const std::atomic<uint64_t>& figure) noexcept {
  return figure.load(std::memory_order_relaxed);  // relaxed: a statistic
}

// A ring's own figures; the other side may lie about its half.
std::vector<uint64_t> figures_of(const Registry::Ring& ring, const PeerCredentials& credentials) {
  const PublisherPage& page = ring.memory->page();
  const CursorPage& cursor = ring.cursor->page();
  RingFigures figures;
  figures.pid = static_cast<uint32_t>(credentials.pid);
  figures.uid = credentials.uid;
  figures.publishes = ring.they_publish ? 1 : 0;
  figures.lapped = ring.is_lapped ? 1 : 0;
  figures.capacity = ring.memory->geometry().capacity;
  figures.slots = ring.memory->geometry().slots;
  figures.frames = read(page.tail_frames);
  figures.bytes = read(page.tail_bytes);
  const uint64_t unread = figures.frames - read(cursor.head_frames);
  const uint64_t unread_bytes = figures.bytes - read(cursor.head_bytes);
  figures.unread_frames = ring.is_lapped ? 0 : std::min(unread, figures.slots);
  figures.unread_bytes = ring.is_lapped ? 0 : std::min(unread_bytes, figures.capacity);
  figures.stalls = read(page.stalls);
  figures.dropped = read(page.dropped);
  figures.lost = read(cursor.lost);
  std::vector<uint64_t> rows;
  for (const TypeCounter& type : page.types) {
    const uint64_t key = read(type.key);
    if (key == 0) continue;
    const uint64_t frames = read(type.frames);
    if (frames == 0) continue;
    rows.insert(rows.end(), {key & UINT32_MAX, frames, read(type.bytes)});
  }
  figures.type_rows = rows.size() / 3;
  std::vector<uint64_t> message(sizeof(figures) / sizeof(uint64_t));
  std::memcpy(message.data(), &figures, sizeof(figures));
  message.insert(message.end(), rows.begin(), rows.end());
  return message;
}

}  // namespace

std::string Registry::refuses(const PeerCredentials& credentials, uint64_t bytes) const {
  const std::scoped_lock lock(mutex_);
  uint32_t of_user = 0;
  uint64_t bytes_all = bytes;
  uint64_t bytes_user = bytes;
  for (const auto& [number, entry] : entries_) {
    bytes_all += entry.bytes;
    if (entry.credentials.uid != credentials.uid) continue;
    ++of_user;
    bytes_user += entry.bytes;
  }
  const auto reached = [](const char* what, uint64_t limit, const char* option) {
    return std::string("the limit of ") + std::to_string(limit) + what + " is reached; raise " +
           option;
  };
  if (entries_.size() >= options_.max_connections) {
    return reached(" connections", options_.max_connections, "max_connections");
  }
  if (of_user >= options_.max_connections_per_user) {
    return reached(" connections a user", options_.max_connections_per_user,
                   "max_connections_per_user");
  }
  if (bytes_all > options_.max_bytes) {
    return reached(" bytes of shared memory", options_.max_bytes, "max_bytes");
  }
  if (bytes_user > options_.max_bytes_per_user) {
    return reached(" bytes of shared memory a user", options_.max_bytes_per_user,
                   "max_bytes_per_user");
  }
  return {};
}

std::shared_ptr<const void> Registry::add(Entry entry) {
  const std::scoped_lock lock(mutex_);
  const uint64_t number = next_number_++;
  entries_.emplace_back(number, std::move(entry));
  // Not the address of anything: only its deleter counts.
  return {this, [self = shared_from_this(), number](const void*) { self->remove(number); }};
}

void Registry::remove(uint64_t number) {
  // Its mappings are unmapped outside the lock.
  std::vector<std::pair<uint64_t, Entry>> gone;
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(entries_, number, &std::pair<uint64_t, Entry>::first);
  if (found == entries_.end()) return;
  gone.push_back(std::move(*found));
  entries_.erase(found);
}

std::vector<std::vector<uint64_t>> Registry::figures() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::vector<uint64_t>> all;
  for (const auto& [number, entry] : entries_) {
    for (const Ring& ring : entry.rings) all.push_back(figures_of(ring, entry.credentials));
  }
  return all;
}

uint32_t Registry::connections() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<uint32_t>(entries_.size());
}

uint64_t Registry::bytes() const {
  const std::scoped_lock lock(mutex_);
  uint64_t sum = 0;
  for (const auto& [number, entry] : entries_) sum += entry.bytes;
  return sum;
}

}  // namespace lumen::bus
