// Request and reply over a connection with a ring each way (Role::kBoth).
//
//   Requester requester(std::move(*connection));
//   auto sent = requester.send(bytes, kType, now_ns() + 5'000'000);      // several may be in flight
//   while (requester.wait() == Outcome::kOk) {
//     while (auto reply = requester.try_take()) use(*reply);             // in any order, by reply->id
//     requester.release();
//   }
//
//   Responder responder(std::move(*accepted));
//   while (responder.wait() == Outcome::kOk) {
//     while (auto request = responder.try_take()) responder.reply(request->id, bytes, kType);
//     responder.release();
//   }
//
// release() also gives back the room of messages that try_take() has dropped, so it follows each
// row of try_take(), whether one was taken or not.
//
// Threads: one at a time. Memory: the table of requests in flight, at construction.
// Errors: Outcome; a reply that nobody waits for (late, cancelled, made up) is counted and dropped.
//
// The frame's id is the correlation id.
#pragma once

#include <lumen/bus/connection.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

namespace lumen::bus {

enum class MessageKind : uint32_t { kRequest = 1, kCancel = 2, kReply = 3 };

// Behind the data, in the last 16 bytes of the frame's last line: a small message is one line, and
// its data is aligned to 64 bytes.
struct MessageTrailer {
  uint64_t deadline_ns = UINT64_MAX;  // of a request, CLOCK_MONOTONIC; UINT64_MAX: none
  uint32_t kind = 0;                  // MessageKind
  uint32_t status = 0;                // of a reply: 0 is success, all else is the responder's
};
static_assert(sizeof(MessageTrailer) == 16);

namespace detail {

// The trailer of a message that the other side has written: each word loaded once. nullopt: too
// short.
inline std::optional<MessageTrailer> trailer_of(const Frame& frame) noexcept {
  if (frame.data.size() < sizeof(MessageTrailer)) return std::nullopt;
  const std::byte* end = frame.data.data() + payload_bytes(frame.data.size());
  const auto* words = reinterpret_cast<const std::atomic<uint64_t>*>(end - sizeof(MessageTrailer));
  // relaxed, both: the frame was acquired with the ring's tail
  const uint64_t deadline_ns = words[0].load(std::memory_order_relaxed);
  const uint64_t rest = words[1].load(std::memory_order_relaxed);  // relaxed: as above
  return MessageTrailer{deadline_ns, static_cast<uint32_t>(rest),
                        static_cast<uint32_t>(rest >> 32)};
}

inline std::span<const std::byte> data_of(const Frame& frame) noexcept {
  return frame.data.first(frame.data.size() - sizeof(MessageTrailer));
}

// Room for a message with `size` bytes of data, of which the caller sees the data.
inline Publisher::Place data_of(const Publisher::Place& place) noexcept {
  if (!place) return place;
  return {Outcome::kOk, place.bytes.first(place.bytes.size() - sizeof(MessageTrailer))};
}

inline void commit(Publisher& publisher, std::span<std::byte> message,
                   const MessageTrailer& trailer, uint32_t type_id, uint64_t id) noexcept {
  std::byte* end = message.data() + payload_bytes(message.size());
  std::memcpy(end - sizeof(trailer), &trailer, sizeof(trailer));
  publisher.commit(message.size(), type_id, id);
}

}  // namespace detail

class Requester {
 public:
  static constexpr uint32_t kMostInFlight = 4096;

  struct Sent {
    Outcome outcome =
        Outcome::kNotNow;  // kNotNow: too many in flight, or no room: take replies first
    uint64_t id = 0;
  };
  struct Reply {
    uint64_t id = 0;
    Outcome outcome =
        Outcome::kOk;  // kTimedOut: its deadline has passed, and no reply will be taken
    uint32_t status = 0;
    uint32_t type_id = 0;
    std::span<const std::byte> data{};  // a view of the ring until release()
  };

  // `connection` has Role::kBoth. `in_flight`: at most so many, a power of two.
  explicit Requester(Connection connection, uint32_t in_flight = 1024);

  // Room for a request of `size` bytes, to be filled and sent by send_reserved().
  [[nodiscard]] Publisher::Place try_reserve(size_t size) noexcept;
  [[nodiscard]] Sent send_reserved(size_t size, uint32_t type_id,
                                   uint64_t deadline_ns = UINT64_MAX) noexcept;
  // Requests that were sent are seen by the responder. send() does it by itself.
  void flush() noexcept { connection_.publisher->flush(); }
  [[nodiscard]] Sent send(std::span<const std::byte> data, uint32_t type_id,
                          uint64_t deadline_ns = UINT64_MAX) noexcept;
  // Its reply is not wanted any more, and the responder is told. False: it is not in flight.
  bool cancel(uint64_t id) noexcept;

  // A reply, or a request whose deadline has passed: each request ends here once, unless it is
  // cancelled.
  [[nodiscard]] std::optional<Reply> try_take() noexcept;
  // Gives the data of all replies that were taken back.
  void release() noexcept { connection_.subscriber->release(); }
  // Until try_take() has something. With nothing in flight: kNotNow.
  Outcome wait(uint64_t deadline_ns = UINT64_MAX) noexcept;
  // One request and its reply; replies to others that come meanwhile are dropped, so: for programs
  // that have one in flight. The data is valid until the next call.
  [[nodiscard]] Reply call(std::span<const std::byte> data, uint32_t type_id,
                           uint64_t deadline_ns = UINT64_MAX) noexcept;

  [[nodiscard]] uint32_t in_flight() const noexcept { return in_flight_; }
  // No request in flight is late before; it may lie before the earliest deadline. UINT64_MAX: none.
  [[nodiscard]] uint64_t next_deadline_ns() const noexcept { return next_deadline_ns_; }
  [[nodiscard]] uint64_t unexpected() const noexcept { return unexpected_; }
  [[nodiscard]] Connection& connection() noexcept { return connection_; }

 private:
  struct Slot {
    uint64_t id = 0;  // of the request in flight; its low bits are this slot's number
    uint64_t deadline_ns = UINT64_MAX;
    bool used = false;
  };
  [[nodiscard]] std::optional<Reply> take_expired() noexcept;
  void free(Slot& slot) noexcept;

  Connection connection_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  uint32_t in_flight_ = 0;
  uint64_t next_deadline_ns_ = UINT64_MAX;  // nothing in flight is late before
  uint64_t unexpected_ = 0;
};

class Responder {
 public:
  struct Request {
    MessageKind kind =
        MessageKind::kRequest;  // kCancel: the request with this id is not wanted any more
    uint64_t id = 0;
    uint64_t deadline_ns = UINT64_MAX;
    uint32_t type_id = 0;
    std::span<const std::byte> data{};  // a view of the ring until release()
  };
  explicit Responder(Connection connection);

  // Requests whose deadline has passed are dropped (their requester has ended them) and counted.
  [[nodiscard]] std::optional<Request> try_take() noexcept;
  void release() noexcept { connection_.subscriber->release(); }
  Outcome wait(uint64_t deadline_ns = UINT64_MAX) noexcept {
    return connection_.subscriber->wait(deadline_ns);
  }

  // Room for the data of a reply, to be filled and sent by reply_reserved().
  [[nodiscard]] Publisher::Place try_reserve(size_t size) noexcept;
  void reply_reserved(uint64_t id, size_t size, uint32_t type_id, uint32_t status = 0) noexcept;
  void flush() noexcept { connection_.publisher->flush(); }
  // Waits for room until the deadline, copies and flushes.
  Outcome reply(uint64_t id, std::span<const std::byte> data, uint32_t type_id, uint32_t status = 0,
                uint64_t deadline_ns = UINT64_MAX) noexcept;
  // The parts follow each other without a gap.
  Outcome reply_parts(uint64_t id, std::span<const std::span<const std::byte>> parts,
                      uint32_t type_id, uint32_t status = 0,
                      uint64_t deadline_ns = UINT64_MAX) noexcept;

  [[nodiscard]] uint64_t late() const noexcept { return late_; }
  [[nodiscard]] Connection& connection() noexcept { return connection_; }

 private:
  Connection connection_;
  uint64_t late_ = 0;
};

// Inline, since both sides of a round trip wait for them: out of line they were a third of it.

inline Publisher::Place Requester::try_reserve(size_t size) noexcept {
  if (free_.empty()) return {Outcome::kNotNow};
  return detail::data_of(connection_.publisher->try_reserve(sizeof(MessageTrailer) + size));
}

inline Requester::Sent Requester::send_reserved(size_t size, uint32_t type_id,
                                                uint64_t deadline_ns) noexcept {
  // Where try_reserve() was: the same place, since nothing was committed meanwhile.
  const Publisher::Place place = connection_.publisher->try_reserve(sizeof(MessageTrailer) + size);
  if (free_.empty() || !place) return {free_.empty() ? Outcome::kNotNow : place.outcome};
  Slot& slot = slots_[free_.back()];
  free_.pop_back();
  slot.used = true;
  slot.deadline_ns = deadline_ns;
  next_deadline_ns_ = std::min(next_deadline_ns_, deadline_ns);
  ++in_flight_;
  MessageTrailer trailer;
  trailer.deadline_ns = deadline_ns;
  trailer.kind = static_cast<uint32_t>(MessageKind::kRequest);
  detail::commit(*connection_.publisher, place.bytes, trailer, type_id, slot.id);
  return {Outcome::kOk, slot.id};
}

// The next request in this slot has another id, so that a late reply is not taken for its reply.
inline void Requester::free(Slot& slot) noexcept {
  free_.push_back(static_cast<uint32_t>(slot.id & (slots_.size() - 1)));
  slot.used = false;
  slot.id += slots_.size();
  slot.deadline_ns = UINT64_MAX;
  --in_flight_;
}

inline std::optional<Requester::Reply> Requester::try_take() noexcept {
  while (const std::optional<Frame> frame = connection_.subscriber->try_take()) {
    const std::optional<MessageTrailer> trailer = detail::trailer_of(*frame);
    if (!trailer || trailer->kind != static_cast<uint32_t>(MessageKind::kReply)) {
      connection_.peer->quarantine();
      return std::nullopt;
    }
    Slot& slot = slots_[frame->id & (slots_.size() - 1)];
    if (!slot.used || slot.id != frame->id) {
      ++unexpected_;
      continue;
    }
    free(slot);
    return Reply{frame->id, Outcome::kOk, trailer->status, frame->type_id, detail::data_of(*frame)};
  }
  return next_deadline_ns_ == UINT64_MAX ? std::nullopt : take_expired();
}

inline std::optional<Responder::Request> Responder::try_take() noexcept {
  while (const std::optional<Frame> frame = connection_.subscriber->try_take()) {
    const std::optional<MessageTrailer> trailer = detail::trailer_of(*frame);
    const bool is_known =
        trailer && (trailer->kind == static_cast<uint32_t>(MessageKind::kRequest) ||
                    trailer->kind == static_cast<uint32_t>(MessageKind::kCancel));
    if (!is_known) {
      connection_.peer->quarantine();
      return std::nullopt;
    }
    if (trailer->deadline_ns != UINT64_MAX && now_ns() >= trailer->deadline_ns) {
      ++late_;
      continue;
    }
    return Request{static_cast<MessageKind>(trailer->kind), frame->id, trailer->deadline_ns,
                   frame->type_id, detail::data_of(*frame)};
  }
  return std::nullopt;
}

inline Publisher::Place Responder::try_reserve(size_t size) noexcept {
  return detail::data_of(connection_.publisher->try_reserve(sizeof(MessageTrailer) + size));
}

inline void Responder::reply_reserved(uint64_t id, size_t size, uint32_t type_id,
                                      uint32_t status) noexcept {
  // Where try_reserve() was: the same place, since nothing was committed meanwhile.
  const Publisher::Place place = connection_.publisher->try_reserve(sizeof(MessageTrailer) + size);
  if (!place) return;  // the requester is gone
  MessageTrailer trailer;
  trailer.kind = static_cast<uint32_t>(MessageKind::kReply);
  trailer.status = status;
  detail::commit(*connection_.publisher, place.bytes, trailer, type_id, id);
}

}  // namespace lumen::bus
