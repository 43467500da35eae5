// Connection: two processes that share rings; connect() is the side that comes, a Listener the
// other.
//
//   auto connection = bus::connect("/run/user/1000/prices.bus", {.role = bus::Role::kPublish});
//   if (!connection.ok()) ...                        // its message says the place, the values and the fix
//   connection->publisher->send(bytes, kType);
//
// Threads: a Publisher and a Subscriber of one connection may be used by two threads.
// Memory: control plane. Errors: Result at the start, Outcome after.
#pragma once

#include <lumen/base/result.h>
#include <lumen/bus/publisher.h>
#include <lumen/bus/stream_memory.h>
#include <lumen/bus/subscriber.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lumen::bus {

// The role of one side; the other side has the other role.
enum class Role : uint32_t {
  kPublish = 1,
  kSubscribe = 2,
  kSubscribeLossy = 3,  // is lapped by the publisher instead of holding it back
  kBoth = 4,            // a ring each way: request and reply
};

struct Connection {
  std::shared_ptr<Peer> peer;
  std::optional<Publisher> publisher;
  std::optional<Subscriber> subscriber;
  std::optional<LossySubscriber> lossy_subscriber;
  // Memory that both sides may read and write, if the listener offers some; the two sides agree on
  // its use. A value read here is to be copied before it is checked.
  std::span<std::byte> area;
  // Keeps the area mapped, and the listener's count of its connections true.
  std::shared_ptr<const void> area_memory;
  std::shared_ptr<const void> lease;
};

struct ConnectOptions {
  Role role = Role::kSubscribe;
  // Waits for the listener to appear, and for its answer.
  uint64_t deadline_ns = 0;  // CLOCK_MONOTONIC; 0: one second from now
  bool wait_for_listener = false;
  std::vector<uid_t> listener_users{};  // whose listener will do; empty: anybody's
  // Asked ten times a second while it waits, on the calling thread; false: the wait is over. A
  // signal ends a sleep only if it comes during one.
  std::function<bool()> goes_on{};
};

// kCancelled: a signal or `goes_on` has ended the wait. kDeadlineExceeded: the listener has not
// answered. kForbidden, kUnsupported, kResourceExhausted: refused, in the listener's words.
[[nodiscard]] Result<Connection> connect(const std::string& path,
                                         const ConnectOptions& options = {});

}  // namespace lumen::bus
