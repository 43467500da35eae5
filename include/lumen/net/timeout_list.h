// TimeoutList: deadlines that all lie the same time ahead when set, so a FIFO list keeps them
// sorted: O(1) set, clear and look. A timing wheel would be dearer and no better here.
// Threads: one. Memory: none, entries are part of the objects that time out. Errors: never.
#pragma once

#include <cstdint>

namespace lumen::net {

struct TimeoutEntry {
  uint64_t deadline_ns = 0;
  TimeoutEntry* previous = nullptr;
  TimeoutEntry* next = nullptr;
  void* owner = nullptr;
  [[nodiscard]] bool linked() const noexcept { return next != nullptr; }
  void unlink() noexcept {
    if (!linked()) return;
    previous->next = next;
    next->previous = previous;
    previous = next = nullptr;
  }
};

class TimeoutList {
 public:
  explicit TimeoutList(uint64_t duration_ns) noexcept : duration_ns_(duration_ns) {
    head_.previous = head_.next = &head_;
  }
  TimeoutList(const TimeoutList&) = delete;
  TimeoutList& operator=(const TimeoutList&) = delete;

  // (Re)starts the entry's time; it may have been in any list.
  void start(TimeoutEntry& entry, uint64_t now_ns) noexcept {
    entry.unlink();
    entry.deadline_ns = now_ns + duration_ns_;
    entry.previous = head_.previous;
    entry.next = &head_;
    head_.previous->next = &entry;
    head_.previous = &entry;
  }
  [[nodiscard]] uint64_t next_deadline_ns() const noexcept {
    return head_.next == &head_ ? UINT64_MAX : head_.next->deadline_ns;
  }
  // The longest waiting entry, unlinked, if its time is up; else nullptr.
  [[nodiscard]] TimeoutEntry* take_expired(uint64_t now_ns) noexcept {
    if (next_deadline_ns() > now_ns) return nullptr;
    TimeoutEntry* entry = head_.next;
    entry->unlink();
    return entry;
  }
  [[nodiscard]] TimeoutEntry* oldest() const noexcept {
    return head_.next == &head_ ? nullptr : head_.next;
  }
  // The one that has waited longest after `entry`, which is in this list; nullptr: none.
  [[nodiscard]] TimeoutEntry* after(const TimeoutEntry& entry) const noexcept {
    return entry.next == &head_ ? nullptr : entry.next;
  }
  [[nodiscard]] uint64_t duration_ns() const noexcept { return duration_ns_; }

 private:
  uint64_t duration_ns_;
  TimeoutEntry head_;
};

}  // namespace lumen::net
