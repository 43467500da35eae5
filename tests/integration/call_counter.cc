// Interposes the allocation and locking functions of the C library for the program it is linked
// into. See support/call_counter.h. Own allocation: none; the originals are called by their glibc
// names or found once by dlsym.
#include "support/call_counter.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstring>

namespace {

// relaxed everywhere: the window is opened and closed while the threads that are counted sleep
// between requests, and the test reads after a reply that came after the calls.
std::atomic<bool> open_window{false};

struct Counters {
  std::atomic<uint64_t> allocations{0};
  std::atomic<uint64_t> frees{0};
  std::atomic<uint64_t> locks{0};
  std::atomic<uint64_t> tried_locks{0};
  std::atomic<uint64_t> futex_waits{0};
};
Counters of_data_plane;
Counters of_backend;
thread_local int paused = 0;
thread_local int in_backend = 0;
thread_local int in_completion = 0;
std::atomic<uint64_t> completions{0};

bool is_data_plane_thread() noexcept {
  char name[16] = {};
  (void)::prctl(PR_GET_NAME, name);
  return std::memcmp(name, "lumen-io", 8) == 0 || std::memcmp(name, "lumen-w", 7) == 0;
}

void count(std::atomic<uint64_t> Counters::* counter) noexcept {
  if (paused == 0 && open_window.load(std::memory_order_relaxed) &&
      (in_completion > 0 || is_data_plane_thread())) {
    Counters& counters = in_backend > 0 ? of_backend : of_data_plane;
    (counters.*counter).fetch_add(1, std::memory_order_relaxed);
  }
}

template <typename Function>
Function* original(const char* name) noexcept {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

// NOLINTBEGIN(bugprone-reserved-identifier): glibc's own names
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
// NOLINTEND(bugprone-reserved-identifier)

void* malloc(size_t bytes) {
  count(&Counters::allocations);
  return __libc_malloc(bytes);
}
void* calloc(size_t items, size_t bytes) {
  count(&Counters::allocations);
  return __libc_calloc(items, bytes);
}
void* realloc(void* memory, size_t bytes) {
  count(&Counters::allocations);
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  count(&Counters::allocations);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  if (memory != nullptr) count(&Counters::frees);
  __libc_free(memory);
}
void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  count(&Counters::allocations);
  return reinterpret_cast<void*>(
      ::syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
}
int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static auto* const real = original<int(pthread_mutex_t*)>("pthread_mutex_lock");
  count(&Counters::locks);
  return real(mutex);
}
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  static auto* const real = original<int(pthread_rwlock_t*)>("pthread_rwlock_rdlock");
  count(&Counters::locks);
  return real(lock);
}
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  static auto* const real = original<int(pthread_rwlock_t*)>("pthread_rwlock_wrlock");
  count(&Counters::locks);
  return real(lock);
}
int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  static auto* const real = original<int(pthread_mutex_t*)>("pthread_mutex_trylock");
  count(&Counters::tried_locks);
  return real(mutex);
}
int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  static auto* const real = original<int(pthread_cond_t*, pthread_mutex_t*)>("pthread_cond_wait");
  count(&Counters::locks);
  return real(condition, mutex);
}
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  static auto* const real =
      original<int(pthread_cond_t*, pthread_mutex_t*, const timespec*)>("pthread_cond_timedwait");
  count(&Counters::locks);
  return real(condition, mutex, until);
}
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  static auto* const real =
      original<int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>(
          "pthread_cond_clockwait");
  count(&Counters::locks);
  return real(condition, mutex, clock, until);
}
int munmap(void* address, size_t bytes) noexcept {
  count(&Counters::frees);
  return static_cast<int>(::syscall(SYS_munmap, address, bytes));
}
// Doorbell and std::atomic::wait sleep by it. No call of Linux has more than six arguments.
long syscall(long number, ...) noexcept {
  static auto* const real = original<long(long, ...)>("syscall");
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex) {
    const long operation = arguments[1] & FUTEX_CMD_MASK;
    if (operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET) count(&Counters::futex_waits);
  }
  return real(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
              arguments[5]);
}

}  // extern "C"

namespace lumen::testing_support {

namespace {

void clear(Counters& counters) noexcept {
  for (auto* counter : {&counters.allocations, &counters.frees, &counters.locks,
                        &counters.tried_locks, &counters.futex_waits}) {
    counter->store(0, std::memory_order_relaxed);
  }
}

CallCounts read(const Counters& counters) noexcept {
  return {counters.allocations.load(std::memory_order_relaxed),
          counters.frees.load(std::memory_order_relaxed),
          counters.locks.load(std::memory_order_relaxed),
          counters.tried_locks.load(std::memory_order_relaxed),
          counters.futex_waits.load(std::memory_order_relaxed)};
}

}  // namespace

void open_call_window() noexcept {
  clear(of_data_plane);
  clear(of_backend);
  completions.store(0, std::memory_order_relaxed);
  open_window.store(true, std::memory_order_relaxed);
}

WindowCounts close_call_window() noexcept {
  open_window.store(false, std::memory_order_relaxed);
  return {read(of_data_plane), read(of_backend), completions.load(std::memory_order_relaxed)};
}

CallCountPause::CallCountPause() noexcept { ++paused; }
CallCountPause::~CallCountPause() { --paused; }
BackendCalls::BackendCalls() noexcept { ++in_backend; }
BackendCalls::~BackendCalls() { --in_backend; }
CompletionCalls::CompletionCalls() noexcept {
  ++in_completion;
  completions.fetch_add(1, std::memory_order_relaxed);
}
CompletionCalls::~CompletionCalls() { --in_completion; }

}  // namespace lumen::testing_support

#endif
