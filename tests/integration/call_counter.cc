// Interposes the allocation and locking functions of the C library for the program it is linked
// into. See support/call_counter.h. Own allocation: none; the originals are called by their glibc
// names or found once by dlsym.
#include "support/call_counter.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace {

// relaxed everywhere: the window is opened and closed while the threads that are counted sleep
// between requests, and the test reads after a reply that came after the calls.
std::atomic<bool> open_window{false};
std::atomic<uint64_t> allocations{0};
std::atomic<uint64_t> frees{0};
std::atomic<uint64_t> locks{0};
thread_local int paused = 0;

bool is_lumen_thread() noexcept {
  char name[16] = {};
  (void)::prctl(PR_GET_NAME, name);
  return std::memcmp(name, "lumen-", 6) == 0;
}

void count(std::atomic<uint64_t>& counter) noexcept {
  if (paused == 0 && open_window.load(std::memory_order_relaxed) && is_lumen_thread()) {
    counter.fetch_add(1, std::memory_order_relaxed);
  }
}

template <typename Function>
Function* original(const char* name) noexcept {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t bytes) {
  count(allocations);
  return __libc_malloc(bytes);
}
void* calloc(size_t items, size_t bytes) {
  count(allocations);
  return __libc_calloc(items, bytes);
}
void* realloc(void* memory, size_t bytes) {
  count(allocations);
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  count(allocations);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  if (memory != nullptr) count(frees);
  __libc_free(memory);
}
void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  count(allocations);
  return reinterpret_cast<void*>(
      ::syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
}
int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static auto* const real = original<int(pthread_mutex_t*)>("pthread_mutex_lock");
  count(locks);
  return real(mutex);
}
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  static auto* const real = original<int(pthread_rwlock_t*)>("pthread_rwlock_rdlock");
  count(locks);
  return real(lock);
}
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  static auto* const real = original<int(pthread_rwlock_t*)>("pthread_rwlock_wrlock");
  count(locks);
  return real(lock);
}
int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  static auto* const real = original<int(pthread_cond_t*, pthread_mutex_t*)>("pthread_cond_wait");
  count(locks);
  return real(condition, mutex);
}

}  // extern "C"

namespace lumen::testing_support {

void open_call_window() noexcept {
  allocations.store(0, std::memory_order_relaxed);
  frees.store(0, std::memory_order_relaxed);
  locks.store(0, std::memory_order_relaxed);
  open_window.store(true, std::memory_order_relaxed);
}

CallCounts close_call_window() noexcept {
  open_window.store(false, std::memory_order_relaxed);
  return {allocations.load(std::memory_order_relaxed), frees.load(std::memory_order_relaxed),
          locks.load(std::memory_order_relaxed)};
}

CallCountPause::CallCountPause() noexcept { ++paused; }
CallCountPause::~CallCountPause() { --paused; }

}  // namespace lumen::testing_support

#endif
