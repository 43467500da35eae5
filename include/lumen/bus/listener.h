// Listener: where processes connect to the bus. It makes the shared memory and decides its size.
//
//   auto listener = bus::Listener::create("/run/user/1000/prices.bus", {.role = Role::kSubscribe});
//   auto connection = (*listener)->accept();          // several: one ring for each publisher
//
//   auto listener = bus::Listener::create(path, {.role = Role::kPublish});
//   Publisher& publisher = (*listener)->publisher();  // one ring; subscribers come and go
//
// Threads: accept() any; publisher() one at a time. A thread of its own ("lumen-bus") makes
// connections and sees them end; it sleeps while none come. Memory: control plane.
// Errors: Result; a process that is refused is told the reason, and no other notices.
#pragma once

#include <lumen/base/result.h>
#include <lumen/bus/connection.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lumen::bus {

struct ListenerOptions {
  Role role = Role::kSubscribe;  // of this side; kSubscribeLossy is the other's choice
  uint64_t capacity = 1 << 20;   // bytes of payload of a ring: a power of two, 4 KiB to 1 GiB
  uint32_t slots = 0;            // frames of a ring, a power of two; 0: a 64th of the capacity
  uint64_t area_bytes = 0;       // of Connection::area; whole pages
  // Bounds, since each connection costs memory and descriptors.
  uint32_t max_connections = 64;
  uint32_t max_connections_per_user = 64;
  uint64_t max_bytes = uint64_t{4} << 30;  // of shared memory, all connections
  uint64_t max_bytes_per_user = uint64_t{4} << 30;
  std::vector<uid_t> users{};  // that may connect; empty: this process's user and root
  uint64_t handshake_timeout_ns = 1'000'000'000;
  // With Role::kPublish: a subscriber that holds the ring back for so long is dropped.
  uint64_t max_hold_ns = 1'000'000'000;
};

class Listener {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Listener>> create(
      const std::string& path, const ListenerOptions& options = {});
  virtual ~Listener() = default;

  // The next connection. kOk, kTimedOut, kInterrupted; not with Role::kPublish.
  struct Accepted {
    Outcome outcome = Outcome::kTimedOut;
    std::optional<Connection> connection;
  };
  [[nodiscard]] virtual Accepted accept(uint64_t deadline_ns = UINT64_MAX) = 0;
  // With Role::kPublish alone.
  [[nodiscard]] virtual Publisher& publisher() noexcept = 0;
  // Readable while accept() would not wait.
  [[nodiscard]] virtual int fd() const noexcept = 0;
  [[nodiscard]] virtual const std::string& path() const noexcept = 0;

  struct Counts {
    uint64_t accepted = 0;
    uint64_t refused = 0;
    uint32_t connections = 0;  // now
    uint64_t bytes = 0;        // of shared memory, now
  };
  [[nodiscard]] virtual Counts counts() const = 0;
};

}  // namespace lumen::bus
