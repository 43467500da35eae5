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

// How often messages are published, and received ones given back. Tachyon's interval, so that
// neither gains by a larger batch than the other's.
inline constexpr uint32_t kFlushEvery = 32;

// The publisher's wait while the ring is full: one decision differs at a time.
enum class Wait : uint8_t {
  kReserve,  // as the bus does it: spins, then sleeps
  kSpin,     // looks again and again
  kFlush,    // the same, and flushes before each look
  kSleep,    // looks every 10 us and a timer's delay
  kPark,     // as kReserve, without the spin
};

struct LumenTuning {
  uint64_t capacity = 1 << 20;
  bool parked = false;
  uint32_t every = kFlushEvery;
  Wait wait = Wait::kReserve;
};

class LumenEnd {
 public:
  LumenEnd(std::unique_ptr<bus::Listener> listener, bus::Connection connection,
           const LumenTuning& tuning)
      : listener_(std::move(listener)), connection_(std::move(connection)), tuning_(tuning) {
    if (tuning.parked || tuning.wait == Wait::kPark) allow_spinning(false);
  }

  template <typename Fill>
  void send(size_t size, Fill&& fill, uint32_t type = 1) {
    bus::Publisher& out = *connection_.publisher;
    bus::Publisher::Place place = out.try_reserve(size);
    if (!place) [[unlikely]]
      place = wait_for_room(size);
    must(place.outcome);
    fill(place.bytes.data());
    out.commit(size, type);
    if (++unpublished_ == tuning_.every) flush();
  }
  void flush() {
    connection_.publisher->flush();
    unpublished_ = 0;
  }
  template <typename Use>
  size_t receive(Use&& use) {
    bus::Subscriber& in = *connection_.subscriber;
    if (tuning_.parked) must(in.wait());
    size_t count = 0;
    // A look that finds nothing is for the next call: the other side may wait for its message.
    while (count < tuning_.every && (count == 0 || in.ready() != 0)) {
      const std::optional<bus::Frame> frame = in.try_take();
      if (!frame) break;
      use(frame->data.data());
      ++count;
    }
    return count;
  }
  void give_back() {
    bus::Subscriber& in = *connection_.subscriber;
    if (tuning_.parked || in.held_frames() >= tuning_.every) in.release();
  }
  bus::Connection& connection() noexcept { return connection_; }
  // Keeps the connection alive on its side.
  [[nodiscard]] std::unique_ptr<bus::Listener> take_listener() noexcept {
    return std::move(listener_);
  }

 private:
  bus::Publisher::Place wait_for_room(size_t size) {
    bus::Publisher& out = *connection_.publisher;
    if (tuning_.wait == Wait::kReserve || tuning_.wait == Wait::kPark) return out.reserve(size);
    out.flush();  // else nobody gives room
    bus::Publisher::Place place;
    do {
      if (tuning_.wait == Wait::kFlush) out.flush();
      if (tuning_.wait == Wait::kSleep) ::usleep(10);
      place = out.try_reserve(size);
    } while (place.outcome == bus::Outcome::kNotNow);
    return place;
  }

  std::unique_ptr<bus::Listener> listener_;
  bus::Connection connection_;
  LumenTuning tuning_;
  uint32_t unpublished_ = 0;
};

[[nodiscard]] inline LumenEnd connect_to(const std::string& path, bus::Role role,
                                         const LumenTuning& tuning) {
  auto made = bus::connect(
      path, {.role = role, .deadline_ns = now_ns() + 10'000'000'000, .wait_for_listener = true});
  if (!made.ok()) give_up(made.status().message());
  return {nullptr, std::move(made).value(), tuning};
}

struct LumenTransport {
  std::string path;
  LumenTuning tuning;

  [[nodiscard]] LumenEnd open(Side side) const {
    if (side == Side::kProducer) return connect_to(path, bus::Role::kBoth, tuning);
    auto made =
        bus::Listener::create(path, {.role = bus::Role::kBoth, .capacity = tuning.capacity});
    if (!made.ok()) give_up(made.status().message());
    auto listener = std::move(made).value();
    auto accepted = listener->accept();
    must(accepted.outcome);
    return {std::move(listener), std::move(*accepted.connection), tuning};
  }
};

}  // namespace lumen::bench
