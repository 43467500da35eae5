// The parts that the extension shares: errors, deadlines, and checks of a handle's user.
// Threads: the interpreter's lock is held unless a comment says otherwise. Memory: Python's and the
// heap's.
// Errors: Python exceptions.
#pragma once

#include <lumen/base/clock.h>
#include <lumen/bus/frame.h>
#include <lumen/bus/peer.h>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace nb = nanobind;

namespace lumen::bus::python {

void bind_errors(nb::module_& module);
void bind_publisher(nb::module_& module);
void bind_subscriber(nb::module_& module);
void bind_requests(nb::module_& module);
void bind_connections(nb::module_& module);
void bind_infer(nb::module_& module);

// Raises the exception for anything but kOk; `what` is its message's end.
[[noreturn]] void raise(Outcome outcome, const std::string& what = {});
[[noreturn]] void raise_bus_error(const std::string& message);

// `timeout` in seconds from now; None: never.
[[nodiscard]] uint64_t deadline_of(std::optional<double> timeout);

// One thread at a time uses a handle, also while that thread waits without the interpreter's lock.
class Use {
 public:
  explicit Use(std::atomic<bool>& busy) : busy_(busy) {
    // sync[bus.python]: acquire from the thread that used it before
    if (busy_.exchange(true, std::memory_order_acquire)) {
      throw nb::value_error("this end of the bus is in use by another thread; give each its own");
    }
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  // sync[bus.python]: release to the next
  ~Use() { busy_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool>& busy_;
};

// Python's handlers of signals run there, and it is the one that ends the interpreter.
[[nodiscard]] inline bool is_main_thread() noexcept { return ::gettid() == ::getpid(); }

// Lets go of the interpreter's lock. Python before 3.14 ends a daemon thread that wants it back
// while the interpreter ends, by an exception that C++ turns into an abort: such a thread sleeps
// until the process is over, as from 3.14 on.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() {
    while (is_finalizing() && !is_main_thread()) ::pause();
    PyEval_RestoreThread(state_);
  }

 private:
  static bool is_finalizing() noexcept;
  PyThreadState* const state_;
};

// A signal that comes while a wait still spins, or that the kernel gives to another thread, does
// not end the wait's poll(): so it is looked for this often.
inline constexpr uint64_t kLookForSignalsNs = 100'000'000;

// Calls `wait(until)` without the interpreter's lock, until it says something else than "a signal
// has come", or that the time is over, which is the deadline's. Python's handlers of signals run in
// between: so Ctrl-C raises KeyboardInterrupt out of every wait.
template <typename Wait>
Outcome wait_interruptibly(uint64_t deadline_ns, Wait&& wait) {
  const bool looks = is_main_thread();
  for (;;) {
    const uint64_t until =
        looks ? std::min(deadline_ns, now_ns() + kLookForSignalsNs) : deadline_ns;
    Outcome outcome = Outcome::kOk;
    {
      const Unlocked without_lock;
      outcome = wait(until);
    }
    const bool is_over = outcome != Outcome::kTimedOut || until == deadline_ns;
    if (outcome != Outcome::kInterrupted && is_over) return outcome;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

// A buffer of Python's, for the time of a call.
class Buffer {
 public:
  Buffer(nb::handle object, int flags) {
    // NumPy has no format of times and of types that others made, which are numbers.
    if (PyObject_GetBuffer(object.ptr(), &view_, flags | PyBUF_FORMAT) != 0) {
      PyErr_Clear();
      if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
    }
    if (!has_objects(view_.format)) return;
    PyBuffer_Release(&view_);
    throw nb::type_error(
        "got an array of Python objects, which are addresses; wanted numbers or bytes");
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }
  [[nodiscard]] const Py_buffer& view() const noexcept { return view_; }
  [[nodiscard]] size_t size() const noexcept { return static_cast<size_t>(view_.len); }

 private:
  // Of PEP 3118: 'O' is an object, and names of fields stand between colons.
  static bool has_objects(const char* format) noexcept {
    bool is_name = false;
    for (; format != nullptr && *format != '\0'; ++format) {
      if (*format == ':') is_name = !is_name;
      if (*format == 'O' && !is_name) return true;
    }
    return false;
  }

  Py_buffer view_{};
};

// The size of one item of NumPy's type `name` ("float32", "f4", ...).
struct ItemType {
  nb::dlpack::dtype dtype;
  size_t bytes;
};
[[nodiscard]] ItemType item_type(nb::handle dtype);

}  // namespace lumen::bus::python
