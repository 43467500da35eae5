// Request and reply over a connection with a ring each way (Role::kBoth).
//
//   Requester requester(std::move(*connection));
//   auto sent = requester.send(bytes, kType, now_ns() + 5'000'000);      // several may be in flight
//   while (requester.wait() == Outcome::kOk)
//     while (auto reply = requester.try_take()) use(*reply);             // in any order, by reply->id
//
//   Responder responder(std::move(*accepted));
//   while (responder.wait() == Outcome::kOk)
//     while (auto request = responder.try_take()) responder.reply(request->id, bytes, kType);
//
// Threads: one at a time. Memory: the table of requests in flight, at construction.
// Errors: Outcome; a reply that nobody waits for (late, cancelled, made up) is counted and dropped.
//
// Each message begins with a line of its own, MessageHeader, so that its data is aligned to 64 bytes;
// the frame's id is the correlation id.
#pragma once

#include <lumen/bus/connection.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lumen::bus {

enum class MessageKind : uint32_t { kRequest = 1, kCancel = 2, kReply = 3 };

struct MessageHeader {
  uint64_t deadline_ns = UINT64_MAX;  // of a request, CLOCK_MONOTONIC; UINT64_MAX: none
  uint32_t kind = 0;                  // MessageKind
  uint32_t status = 0;                // of a reply: 0 is success, all else is the responder's
  std::array<uint8_t, 48> reserved{};
};
static_assert(sizeof(MessageHeader) == kPayloadAlign);

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

  // A reply, or a request whose deadline has passed: each request ends here once, unless it is cancelled.
  [[nodiscard]] std::optional<Reply> try_take() noexcept;
  // Gives the data of all replies that were taken back.
  void release() noexcept { connection_.subscriber->release(); }
  // Until try_take() has something. With nothing in flight: kNotNow.
  Outcome wait(uint64_t deadline_ns = UINT64_MAX) noexcept;
  // One request and its reply; replies to others that come meanwhile are dropped, so: for programs that
  // have one in flight. The data is valid until the next call.
  [[nodiscard]] Reply call(std::span<const std::byte> data, uint32_t type_id,
                           uint64_t deadline_ns = UINT64_MAX) noexcept;

  [[nodiscard]] uint32_t in_flight() const noexcept { return in_flight_; }
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

  [[nodiscard]] uint64_t late() const noexcept { return late_; }
  [[nodiscard]] Connection& connection() noexcept { return connection_; }

 private:
  Connection connection_;
  uint64_t late_ = 0;
};

}  // namespace lumen::bus
