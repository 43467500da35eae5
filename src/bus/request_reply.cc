// Requests in flight, their deadlines and their replies. One thread at a time.
// Memory: the table, at construction. Errors: Outcome.
#include <lumen/base/check.h>
#include <lumen/base/clock.h>
#include <lumen/bus/request_reply.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace lumen::bus {
namespace {

constexpr size_t kHeader = sizeof(MessageHeader);

// The header of a message that the other side has written: each word loaded once.
std::optional<MessageHeader> header_of(const Frame& frame) noexcept {
  if (frame.data.size() < kHeader) return std::nullopt;
  const auto* words = reinterpret_cast<const std::atomic<uint64_t>*>(frame.data.data());
  MessageHeader header;
  // relaxed, both: the frame was acquired with the ring's tail
  header.deadline_ns = words[0].load(std::memory_order_relaxed);
  const uint64_t rest = words[1].load(std::memory_order_relaxed);  // relaxed: as above
  header.kind = static_cast<uint32_t>(rest);
  header.status = static_cast<uint32_t>(rest >> 32);
  return header;
}

// Room for a message with `size` bytes of data, of which the caller sees the data.
Publisher::Place data_of(const Publisher::Place& place) noexcept {
  return place ? Publisher::Place{Outcome::kOk, place.bytes.subspan(kHeader)} : place;
}

void commit(Publisher& publisher, std::span<std::byte> message, const MessageHeader& header,
            uint32_t type_id, uint64_t id) noexcept {
  std::memcpy(message.data(), &header, kHeader);
  publisher.commit(message.size(), type_id, id);
}

}  // namespace

Requester::Requester(Connection connection, uint32_t in_flight)
    : connection_(std::move(connection)),
      slots_(std::bit_ceil(std::clamp(in_flight, 1u, kMostInFlight))) {
  LUMEN_CHECK(connection_.publisher && connection_.subscriber);
  free_.reserve(slots_.size());
  for (size_t i = slots_.size(); i-- > 0;) {
    slots_[i].id = i;
    free_.push_back(static_cast<uint32_t>(i));
  }
}

Publisher::Place Requester::try_reserve(size_t size) noexcept {
  if (free_.empty()) return {Outcome::kNotNow};
  return data_of(connection_.publisher->try_reserve(kHeader + size));
}

Requester::Sent Requester::send_reserved(size_t size, uint32_t type_id,
                                         uint64_t deadline_ns) noexcept {
  // Where try_reserve() was: the same place, since nothing was committed meanwhile.
  const Publisher::Place place = connection_.publisher->try_reserve(kHeader + size);
  if (free_.empty() || !place) return {free_.empty() ? Outcome::kNotNow : place.outcome};
  Slot& slot = slots_[free_.back()];
  free_.pop_back();
  slot.used = true;
  slot.deadline_ns = deadline_ns;
  next_deadline_ns_ = std::min(next_deadline_ns_, deadline_ns);
  ++in_flight_;
  MessageHeader header;
  header.deadline_ns = deadline_ns;
  header.kind = static_cast<uint32_t>(MessageKind::kRequest);
  commit(*connection_.publisher, place.bytes, header, type_id, slot.id);
  return {Outcome::kOk, slot.id};
}

Requester::Sent Requester::send(std::span<const std::byte> data, uint32_t type_id,
                                uint64_t deadline_ns) noexcept {
  const Publisher::Place place = try_reserve(data.size());
  if (!place) {
    flush();
    return {place.outcome};
  }
  if (!data.empty()) std::memcpy(place.bytes.data(), data.data(), data.size());
  const Sent sent = send_reserved(data.size(), type_id, deadline_ns);
  flush();
  return sent;
}

// The next request in this slot has another id, so that a late reply is not taken for its reply.
void Requester::free(Slot& slot) noexcept {
  free_.push_back(static_cast<uint32_t>(slot.id & (slots_.size() - 1)));
  slot.used = false;
  slot.id += slots_.size();
  slot.deadline_ns = UINT64_MAX;
  --in_flight_;
}

bool Requester::cancel(uint64_t id) noexcept {
  Slot& slot = slots_[id & (slots_.size() - 1)];
  if (!slot.used || slot.id != id) return false;
  free(slot);
  // Without room the responder answers for nothing; the reply is dropped all the same.
  if (const Publisher::Place place = connection_.publisher->try_reserve(kHeader)) {
    MessageHeader header;
    header.kind = static_cast<uint32_t>(MessageKind::kCancel);
    commit(*connection_.publisher, place.bytes, header, 0, id);
    flush();
  }
  return true;
}

std::optional<Requester::Reply> Requester::try_take() noexcept {
  while (const std::optional<Frame> frame = connection_.subscriber->try_take()) {
    const std::optional<MessageHeader> header = header_of(*frame);
    if (!header || header->kind != static_cast<uint32_t>(MessageKind::kReply)) {
      connection_.peer->quarantine();
      return std::nullopt;
    }
    Slot& slot = slots_[frame->id & (slots_.size() - 1)];
    if (!slot.used || slot.id != frame->id) {
      ++unexpected_;
      continue;
    }
    free(slot);
    return Reply{frame->id, Outcome::kOk, header->status, frame->type_id,
                 frame->data.subspan(kHeader)};
  }
  return take_expired();
}

std::optional<Requester::Reply> Requester::take_expired() noexcept {
  if (next_deadline_ns_ == UINT64_MAX) return std::nullopt;
  const uint64_t now = now_ns();
  if (now < next_deadline_ns_) return std::nullopt;
  next_deadline_ns_ = UINT64_MAX;
  std::optional<Reply> expired;
  for (Slot& slot : slots_) {
    if (!slot.used) continue;
    if (!expired && slot.deadline_ns <= now) {
      expired = Reply{slot.id, Outcome::kTimedOut};
      free(slot);
      continue;
    }
    next_deadline_ns_ = std::min(next_deadline_ns_, slot.deadline_ns);
  }
  return expired;
}

Outcome Requester::wait(uint64_t deadline_ns) noexcept {
  if (in_flight_ == 0) return Outcome::kNotNow;
  flush();
  const Outcome outcome = connection_.subscriber->wait(std::min(deadline_ns, next_deadline_ns_));
  const bool something_is_late = outcome == Outcome::kTimedOut && next_deadline_ns_ <= now_ns();
  return something_is_late ? Outcome::kOk : outcome;
}

Requester::Reply Requester::call(std::span<const std::byte> data, uint32_t type_id,
                                 uint64_t deadline_ns) noexcept {
  release();
  for (;;) {
    const Sent sent = send(data, type_id, deadline_ns);
    if (sent.outcome == Outcome::kNotNow) {
      // Replies to requests that were given up fill the ring: they are dropped.
      if (try_take()) continue;
      release();
      const Outcome outcome =
          connection_.publisher->reserve(kHeader + data.size(), deadline_ns).outcome;
      if (outcome == Outcome::kOk) continue;
      return {0, outcome};
    }
    if (sent.outcome != Outcome::kOk) return {0, sent.outcome};
    for (;;) {
      while (const std::optional<Reply> reply = try_take()) {
        if (reply->id == sent.id) return *reply;
        release();
      }
      const Outcome outcome = wait(deadline_ns);
      if (outcome == Outcome::kOk) continue;
      (void)cancel(sent.id);
      return {sent.id, outcome};
    }
  }
}

Responder::Responder(Connection connection) : connection_(std::move(connection)) {
  LUMEN_CHECK(connection_.publisher && connection_.subscriber);
}

std::optional<Responder::Request> Responder::try_take() noexcept {
  while (const std::optional<Frame> frame = connection_.subscriber->try_take()) {
    const std::optional<MessageHeader> header = header_of(*frame);
    const bool is_known = header && (header->kind == static_cast<uint32_t>(MessageKind::kRequest) ||
                                     header->kind == static_cast<uint32_t>(MessageKind::kCancel));
    if (!is_known) {
      connection_.peer->quarantine();
      return std::nullopt;
    }
    if (header->deadline_ns != UINT64_MAX && now_ns() >= header->deadline_ns) {
      ++late_;
      continue;
    }
    return Request{static_cast<MessageKind>(header->kind), frame->id, header->deadline_ns,
                   frame->type_id, frame->data.subspan(kHeader)};
  }
  return std::nullopt;
}

Publisher::Place Responder::try_reserve(size_t size) noexcept {
  return data_of(connection_.publisher->try_reserve(kHeader + size));
}

void Responder::reply_reserved(uint64_t id, size_t size, uint32_t type_id,
                               uint32_t status) noexcept {
  // Where try_reserve() was: the same place, since nothing was committed meanwhile.
  const Publisher::Place place = connection_.publisher->try_reserve(kHeader + size);
  if (!place) return;  // the requester is gone
  MessageHeader header;
  header.kind = static_cast<uint32_t>(MessageKind::kReply);
  header.status = status;
  commit(*connection_.publisher, place.bytes, header, type_id, id);
}

Outcome Responder::reply(uint64_t id, std::span<const std::byte> data, uint32_t type_id,
                         uint32_t status, uint64_t deadline_ns) noexcept {
  const Publisher::Place place =
      data_of(connection_.publisher->reserve(kHeader + data.size(), deadline_ns));
  if (!place) return place.outcome;
  if (!data.empty()) std::memcpy(place.bytes.data(), data.data(), data.size());
  reply_reserved(id, data.size(), type_id, status);
  flush();
  return Outcome::kOk;
}

}  // namespace lumen::bus
