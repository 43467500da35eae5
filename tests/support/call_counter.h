// Counts heap and lock calls of this process while a window is open: malloc and its family, operator
// new (which calls malloc), mmap, pthread mutex, rwlock and condition waits. Parking (futex, epoll)
// is not a lock and not counted.
// Threads: any. Memory: none. Says no: not available under sanitizers, which have their own malloc.
#pragma once

#include <cstdint>

namespace lumen::testing_support {

struct CallCounts {
  uint64_t allocations = 0;  // malloc, calloc, realloc, aligned forms, mmap
  uint64_t frees = 0;
  uint64_t locks = 0;
};

// Calls between the two, of the threads that Lumen has named (lumen-io0, lumen-w0), but not inside a
// CallCountPause. Other threads are OpenVINO's and the test's own: a straggler of the server of the
// test before once allocated in the window.
void open_call_window() noexcept;
[[nodiscard]] CallCounts close_call_window() noexcept;

// While one lives, calls of its thread are not counted: the backend's own, and the test's.
class CallCountPause {
 public:
  CallCountPause() noexcept;
  ~CallCountPause();
  CallCountPause(const CallCountPause&) = delete;
  CallCountPause& operator=(const CallCountPause&) = delete;
};

}  // namespace lumen::testing_support
