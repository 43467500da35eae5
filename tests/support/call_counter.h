// Counts heap and lock calls of this process while a window is open: malloc and its family,
// operator new (which calls malloc), mmap, pthread mutex, rwlock and condition calls, and futex
// waits. Parking (a futex wait, epoll) is not a lock: futex waits stand apart, so that a test can
// hold them against the parks that the server itself counts.
// Threads: any. Memory: none. Errors: not available under sanitizers, which have their own malloc.
#pragma once

#include <cstdint>

namespace lumen::testing_support {

struct CallCounts {
  uint64_t allocations = 0;  // malloc, calloc, realloc, aligned forms, mmap
  uint64_t frees = 0;        // free, munmap
  uint64_t locks = 0;
  uint64_t tried_locks = 0;  // pthread_mutex_trylock, which never waits
  uint64_t futex_waits = 0;
  [[nodiscard]] uint64_t all_locks() const noexcept { return locks + tried_locks; }
};

struct WindowCounts {
  CallCounts data_plane;
  CallCounts backend;        // inside a BackendCalls
  uint64_t completions = 0;  // CompletionCalls that lived
};

// Calls between the two, of the threads of the data plane by their names (lumen-io0, lumen-w0), but
// not inside a CallCountPause. Other threads are the control plane's (lumen-trace), OpenVINO's and
// the test's own: a straggler of the server of the test before once allocated in the window.
void open_call_window() noexcept;
[[nodiscard]] WindowCounts close_call_window() noexcept;

// While one lives, calls of its thread are not counted: the test's own.
class CallCountPause {
 public:
  CallCountPause() noexcept;
  ~CallCountPause();
  CallCountPause(const CallCountPause&) = delete;
  CallCountPause& operator=(const CallCountPause&) = delete;
};

// While one lives, calls of its thread are counted as the backend's.
class BackendCalls {
 public:
  BackendCalls() noexcept;
  ~BackendCalls();
  BackendCalls(const BackendCalls&) = delete;
  BackendCalls& operator=(const BackendCalls&) = delete;
};

// While one lives, calls of its thread are counted as the data plane's: a backend's own thread
// completes a request.
class CompletionCalls {
 public:
  CompletionCalls() noexcept;
  ~CompletionCalls();
  CompletionCalls(const CompletionCalls&) = delete;
  CompletionCalls& operator=(const CompletionCalls&) = delete;
};

}  // namespace lumen::testing_support
