// The state behind Python's handles: a connection, and the views of its ring that are alive.
// Threads: see each. Memory: the heap; shared by handles and views, so that views outlive a close.
// Errors: Python exceptions.
#pragma once

#include <lumen/bus/connection.h>
#include <lumen/bus/listener.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "support.h"

namespace lumen::bus::python {

// Of one publisher, however many handles Python makes of it.
struct PublisherState {
  std::atomic<bool> busy{false};
  bool has_reservation = false;  // under the interpreter's lock
  bool is_closed = false;        // its listener is; under the interpreter's lock
};

struct ConnectionState {
  explicit ConnectionState(Connection c) : connection(std::move(c)) {}
  Connection connection;
  std::shared_ptr<PublisherState> publisher_state = std::make_shared<PublisherState>();
  std::atomic<bool> subscriber_busy{false};
  std::atomic<bool> is_closed{false};

  void check_open() const {
    if (is_closed.load(std::memory_order_relaxed)) {  // relaxed: set under the interpreter's lock
      raise_bus_error("bus: this connection is closed");
    }
    if (fork_count() != born) raise(Outcome::kForked);
  }
  void close() noexcept;
  const uint32_t born = fork_count();
};

// Frames that Python has views of. Slots go back in order: a hold that ends before an older one
// waits for it, since the ring does.
class Holds {
 public:
  explicit Holds(std::shared_ptr<ConnectionState> state) : state_(std::move(state)) {}

  struct Hold {
    std::shared_ptr<Holds> owner;
    uint64_t number = 0;
  };
  // All that was taken up to `end` and after the newest hold.
  [[nodiscard]] static Hold* make(const std::shared_ptr<Holds>& holds, Position end);
  // From any thread that may run a destructor.
  static void end(Hold* hold) noexcept;

  [[nodiscard]] size_t alive() const;
  [[nodiscard]] std::string description() const;  // of the views that are held, for an error's text

 private:
  struct Entry {
    Position end;
    bool is_over = false;
  };
  const std::shared_ptr<ConnectionState> state_;
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;  // the oldest first
  uint64_t first_number_ = 0;
};

// Listener.publisher and a connection's publisher are the same to Python.
struct PublisherHandle {
  Publisher* publisher;
  std::shared_ptr<PublisherState> state;
  std::shared_ptr<void> owner;                  // of the publisher
  std::shared_ptr<ConnectionState> connection;  // none of a listener's publisher
  uint32_t born = fork_count();
};

struct ListenerHandle {
  std::shared_ptr<Listener> listener;
  std::shared_ptr<PublisherState> publisher_state = std::make_shared<PublisherState>();

  Listener& open() const {
    if (listener == nullptr) raise_bus_error("bus: this listener is closed");
    return *listener;
  }
};

// The next process that connects; waits without the interpreter's lock.
[[nodiscard]] Connection next_connection(const ListenerHandle& listener,
                                         std::optional<double> timeout);

// As connect(); Ctrl-C breaks it.
[[nodiscard]] Connection connect_interruptibly(const std::string& path, Role role,
                                               std::optional<double> timeout, bool wait);

struct SubscriberHandle {
  std::shared_ptr<ConnectionState> state;
  std::shared_ptr<Holds> holds;
  uint32_t type_id = 0;  // of the batch that was taken last
};

}  // namespace lumen::bus::python
