// See handles.h.
#include "handles.h"

#include <algorithm>

namespace lumen::bus::python {

void ConnectionState::close() noexcept {
  // relaxed: under the interpreter's lock
  if (is_closed.exchange(true, std::memory_order_relaxed)) return;
  // Another thread that is sending flushes by itself.
  std::atomic<bool>& busy = publisher_state->busy;
  if (connection.publisher &&
      !busy.exchange(true, std::memory_order_acquire)) {  // sync[bus.python]
    connection.publisher->flush();
    busy.store(false, std::memory_order_release);  // sync[bus.python]
  }
  if (connection.peer != nullptr) connection.peer->close(Goodbye::kClosed);
}

Connection next_connection(const ListenerHandle& handle, std::optional<double> timeout) {
  handle.open();
  const std::shared_ptr<Listener> listener = handle.listener;  // alive while it waits
  const uint64_t deadline_ns = deadline_of(timeout);
  std::optional<Listener::Accepted> accepted;
  (void)wait_interruptibly(deadline_ns, [&](uint64_t until) {
    accepted.emplace(listener->accept(until));
    return accepted->outcome;
  });
  if (!accepted->connection) raise(accepted->outcome, "nobody has connected");
  return std::move(*accepted->connection);
}

Connection connect_interruptibly(const std::string& path, Role role, std::optional<double> timeout,
                                 bool wait) {
  ConnectOptions options{.role = role,
                         .deadline_ns = std::max<uint64_t>(1, deadline_of(timeout)),
                         .wait_for_listener = wait};
  if (is_main_thread()) {
    options.goes_on = [] {
      const nb::gil_scoped_acquire with_lock;
      return PyErr_CheckSignals() == 0;
    };
  }
  for (;;) {
    std::optional<Result<Connection>> made;
    {
      const Unlocked without_lock;
      made.emplace(connect(path, options));
    }
    if (made->ok()) return std::move(*made).value();
    if (PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0) throw nb::python_error();
    const Status status = made->status();
    if (status.code() == Code::kCancelled) continue;
    const std::string message(status.message());
    if (status.code() != Code::kDeadlineExceeded) raise_bus_error(message);
    PyErr_SetString(PyExc_TimeoutError, message.c_str());
    throw nb::python_error();
  }
}

Holds::Hold* Holds::make(const std::shared_ptr<Holds>& holds, Position end) {
  const std::scoped_lock lock(holds->mutex_);
  holds->entries_.push_back({end});
  return new Hold{holds, holds->first_number_ + holds->entries_.size() - 1};
}

void Holds::end(Hold* hold) noexcept {
  const std::shared_ptr<Holds> holds = std::move(hold->owner);
  const uint64_t number = hold->number;
  delete hold;
  // In a child the mutex may be one that another thread of the parent held.
  if (fork_count() != holds->state_->born) return;
  const std::scoped_lock lock(holds->mutex_);
  holds->entries_[number - holds->first_number_].is_over = true;
  Position free{};
  bool some = false;
  while (!holds->entries_.empty() && holds->entries_.front().is_over) {
    free = holds->entries_.front().end;
    some = true;
    holds->entries_.pop_front();
    ++holds->first_number_;
  }
  if (some) holds->state_->connection.subscriber->release_to(free);
}

size_t Holds::alive() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<size_t>(
      std::ranges::count_if(entries_, [](const Entry& entry) { return !entry.is_over; }));
}

std::string Holds::description() const {
  const Subscriber& subscriber = *state_->connection.subscriber;
  return std::to_string(alive()) + " views hold " + std::to_string(subscriber.held_frames()) +
         " frames (" + std::to_string(subscriber.held_bytes()) + " of " +
         std::to_string(subscriber.geometry().capacity) +
         " bytes); let go of them, copy them, or make the ring larger";
}

}  // namespace lumen::bus::python
