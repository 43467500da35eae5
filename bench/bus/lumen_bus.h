// Lumen's bus as a transport of two_processes.h: a connection with a ring each way.
// Threads: one a process, and the listener's own, which sleeps. Memory: the bus's.
// Errors: exit 2 with the bus's own words.
#pragma once

#include "two_processes.h"

#include <lumen/bus/connection.h>
#include <lumen/bus/listener.h>

#include <array>
#include <memory>
#include <string>

namespace lumen::bench {

inline void must(bus::Outcome outcome) {
  if (outcome != bus::Outcome::kOk) give_up(std::string("lumen: ") + bus::name_of(outcome));
}

// How often what was sent is published, and what was received given back. Tachyon's interval, so that
// neither gains by a larger batch than the other's.
inline constexpr uint32_t kFlushEvery = 32;

class LumenEnd {
 public:
  LumenEnd(std::unique_ptr<bus::Listener> listener, bus::Connection connection, bool parked,
           uint32_t every)
      : listener_(std::move(listener)),
        connection_(std::move(connection)),
        parked_(parked),
        every_(every) {}

  template <typename Fill>
  void send(size_t size, Fill&& fill) {
    bus::Publisher& out = *connection_.publisher;
    const bus::Publisher::Place place = out.reserve(size);
    must(place.outcome);
    fill(place.bytes.data());
    out.commit(size, 1);
    if (++unpublished_ == every_) flush();
  }
  void flush() {
    connection_.publisher->flush();
    unpublished_ = 0;
  }
  template <typename Use>
  size_t receive(Use&& use) {
    bus::Subscriber& in = *connection_.subscriber;
    if (parked_) must(in.wait());
    size_t count = 0;
    while (count < every_) {
      const std::optional<bus::Frame> frame = in.try_take();
      if (!frame) break;
      use(frame->data.data());
      ++count;
    }
    return count;
  }
  void give_back() {
    bus::Subscriber& in = *connection_.subscriber;
    if (parked_ || in.held_frames() >= every_) in.release();
  }
  bus::Connection& connection() noexcept { return connection_; }
  // Keeps the connection alive on its side.
  [[nodiscard]] std::unique_ptr<bus::Listener> take_listener() noexcept {
    return std::move(listener_);
  }

 private:
  std::unique_ptr<bus::Listener> listener_;
  bus::Connection connection_;
  bool parked_;
  uint32_t every_;
  uint32_t unpublished_ = 0;
};

struct LumenTransport {
  std::string path;
  uint64_t capacity;
  bool parked;
  uint32_t every = kFlushEvery;

  [[nodiscard]] LumenEnd open(Side side) const {
    if (parked) allow_spinning(false);
    if (side == Side::kConsumer) {
      auto made = bus::Listener::create(path, {.role = bus::Role::kBoth, .capacity = capacity});
      if (!made.ok()) give_up(made.status().message());
      auto listener = std::move(made).value();
      auto accepted = listener->accept();
      must(accepted.outcome);
      return {std::move(listener), std::move(*accepted.connection), parked, every};
    }
    auto made = bus::connect(path, {.role = bus::Role::kBoth,
                                    .deadline_ns = now_ns() + 10'000'000'000,
                                    .wait_for_listener = true});
    if (!made.ok()) give_up(made.status().message());
    return {nullptr, std::move(made).value(), parked, every};
  }
};

}  // namespace lumen::bench
