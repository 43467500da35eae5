// The fibers' scheduler, and this program's definitions of the C library's threads and clock. See
// the header.
#include "simulation/fibers.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <vector>

namespace lumen::sim {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 1024 * 1024;  // its frames are larger
#else
constexpr size_t kStackBytes = 256 * 1024;
#endif
constexpr uint64_t kNever = UINT64_MAX;
// A world of some hundred requests takes some hundred thousand; one that never ends is a failure
// too.
constexpr uint64_t kMostSwitches = 20'000'000;

// How long the same thread is held back.
constexpr uint64_t kSlowForSwitches = 256;

// Where a thread of control is while another runs. ASan is told of each switch, since it keeps a
// shadow of the stack and, for objects that have left their scope, a stack of its own.
struct Place {
  ucontext_t context{};
  const void* stack = nullptr;
  size_t stack_bytes = 0;
  void* asan_stack = nullptr;
};

#if defined(__SANITIZE_ADDRESS__)
void asan_leaves(Place& from, bool for_good, const Place& to) noexcept {
  __sanitizer_start_switch_fiber(for_good ? nullptr : &from.asan_stack, to.stack, to.stack_bytes);
}
void asan_arrives(const Place& here, Place& from) noexcept {
  __sanitizer_finish_switch_fiber(here.asan_stack, &from.stack, &from.stack_bytes);
}
void asan_forgets(std::byte* stack) noexcept { __asan_unpoison_memory_region(stack, kStackBytes); }
#else
void asan_leaves(Place&, bool, const Place&) noexcept {}
void asan_arrives(const Place&, Place&) noexcept {}
void asan_forgets(std::byte*) noexcept {}
#endif

struct Fiber {
  Place place;
  std::byte* stack = nullptr;
  void* (*entry)(void*) = nullptr;
  void* argument = nullptr;
  void* result = nullptr;
  bool done = false;
  const void* key = nullptr;  // that it waits on; nullptr: it can run
  uint64_t deadline_ns = kNever;
  bool timed_out = false;
};

struct World {
  uint64_t seed = 0;
  Random random{0};
  uint64_t time_ns = 0;
  uint64_t hash = 0;
  uint64_t switches = 0;
  size_t switch_one_in = 8;
  bool may_hold_long = true;
  bool runs = false;
  // Those that are done stay, for threads that join them.
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> live;
  std::vector<Fiber*> ready;
  Fiber* current = nullptr;
  // Gets its turn late: others overtake it in the midst of its work.
  const Fiber* slow = nullptr;
  Place outside;
};
World world;
constexpr size_t kUsualThreads = 4096;  // that a world starts, one after the other
std::vector<std::byte*> spare_stacks;

std::byte* take_stack() {
  if (!spare_stacks.empty()) {
    std::byte* stack = spare_stacks.back();
    spare_stacks.pop_back();
    asan_forgets(stack);
    return stack;
  }
  void* made = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) std::abort();
  return static_cast<std::byte*>(made);
}

void advance_to_next_deadline() noexcept {
  Fiber* next = nullptr;
  for (Fiber* fiber : world.live) {
    if (fiber->key == nullptr || fiber->deadline_ns == kNever) continue;
    if (next == nullptr || fiber->deadline_ns < next->deadline_ns) next = fiber;
  }
  if (next == nullptr) {
    fail("all %zu threads wait for each other: a wake-up was lost", world.live.size());
  }
  world.time_ns = std::max(world.time_ns, next->deadline_ns);
}

// Those whose time is over can run.
void expire() noexcept {
  for (Fiber* fiber : world.live) {
    if (fiber->key == nullptr || fiber->deadline_ns > world.time_ns) continue;
    fiber->key = nullptr;
    fiber->timed_out = true;
    world.ready.push_back(fiber);
  }
}

Fiber& pick() noexcept {
  expire();
  while (world.ready.empty()) {
    advance_to_next_deadline();
    expire();
  }
  size_t at = world.random.below(world.ready.size());
  if (world.ready[at] == world.slow && world.ready.size() > 1 && !world.random.one_in(32)) {
    at = (at + 1 + world.random.below(world.ready.size() - 1)) % world.ready.size();
  }
  Fiber& next = *world.ready[at];
  world.ready[at] = world.ready.back();
  world.ready.pop_back();
  note(static_cast<uint64_t>(at));
  return next;
}

// Returns when somebody goes back to `from`.
void go_to(Place& from, Place& to, bool for_good = false) noexcept {
  asan_leaves(from, for_good, to);
  ::swapcontext(&from.context, &to.context);
  Place before;
  asan_arrives(from, before);
}

// The current fiber is in `ready`, waits, or is done.
void switch_away() noexcept {
  if (++world.switches > kMostSwitches) fail("it does not end");
  if (world.switches % kSlowForSwitches == 0) {
    const bool has_one = world.random.one_in(2);
    world.slow = has_one ? world.live[world.random.below(world.live.size())] : nullptr;
  }
  world.time_ns += 50 + world.random.below(500);
  Fiber* const before = world.current;
  Fiber& next = pick();
  if (&next == before) return;
  world.current = &next;
  go_to(before->place, next.place, before->done);
}

void main_of_fiber() {
  Fiber& self = *world.current;
  const bool is_first = &self == world.fibers.front().get();
  Place before;
  // The first one is begun from outside, whose stack only ASan knows.
  asan_arrives(self.place, is_first ? world.outside : before);
  self.result = self.entry(self.argument);
  self.done = true;
  std::erase(world.live, &self);
  if (is_first) go_to(self.place, world.outside, true);
  wake(&self, SIZE_MAX);
  switch_away();
  std::abort();  // no thread runs one that is done
}

Fiber& start_fiber(void* (*entry)(void*), void* argument) {
  auto made = std::make_unique<Fiber>();
  Fiber& fiber = *made;
  fiber.entry = entry;
  fiber.argument = argument;
  fiber.stack = take_stack();
  fiber.place.stack = fiber.stack;
  fiber.place.stack_bytes = kStackBytes;
  ucontext_t& context = fiber.place.context;
  ::getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack;
  context.uc_stack.ss_size = kStackBytes;
  ::makecontext(&context, &main_of_fiber, 0);
  world.live.push_back(&fiber);
  world.fibers.push_back(std::move(made));
  return fiber;
}

const std::function<void()>* world_body = nullptr;

}  // namespace

Random& random() noexcept { return world.random; }
uint64_t time_ns() noexcept { return world.time_ns; }
uint64_t trace_hash() noexcept { return world.hash; }
uint64_t switches() noexcept { return world.switches; }

void note(uint64_t event) noexcept {
  world.hash = (world.hash ^ event) * 1099511628211u + world.time_ns;
}

void yield() noexcept {
  if (!world.runs) return;
  world.ready.push_back(world.current);
  switch_away();
}

void may_switch() noexcept {
  if (!world.runs) return;
  // Now and then the thread is held for long, in the midst of its work: other threads overtake it,
  // and so do deadlines.
  if (world.may_hold_long && world.random.one_in(2'000))
    let_time_pass_ns(world.random.below(30'000'000));
  if (world.random.one_in(world.switch_one_in)) yield();
}

void allow_long_holds(bool allowed) noexcept { world.may_hold_long = allowed; }
const void* this_thread() noexcept { return world.current; }

bool wait_on(const void* key, uint64_t deadline_ns) noexcept {
  Fiber& self = *world.current;
  self.key = key;
  self.deadline_ns = deadline_ns;
  self.timed_out = false;
  switch_away();
  return !self.timed_out;
}

size_t wake(const void* key, size_t count) noexcept {
  std::vector<Fiber*> waiting;
  for (Fiber* fiber : world.live) {
    if (fiber->key == key) waiting.push_back(fiber);
  }
  size_t woken = 0;
  while (woken < count && !waiting.empty()) {
    const size_t at = world.random.below(waiting.size());
    waiting[at]->key = nullptr;
    world.ready.push_back(waiting[at]);
    waiting[at] = waiting.back();
    waiting.pop_back();
    ++woken;
  }
  return woken;
}

void let_time_pass_ns(uint64_t ns) noexcept {
  const char own = 0;
  (void)wait_on(&own, world.time_ns + ns);
}

void run_world(uint64_t seed, const std::function<void()>& body) {
  world.seed = seed;
  world.random = Random(seed);
  world.time_ns = 1'000'000'000'000 + world.random.below(1'000'000'000);
  world.hash = seed;
  world.switches = 0;
  world.switch_one_in = size_t{2} << world.random.below(6);
  world.may_hold_long = true;
  world_body = &body;
  // Lists that grow here would look like leaks of the program: a world's repetition may take more
  // threads than it did.
  for (auto* list : {&world.live, &world.ready}) list->reserve(kUsualThreads);
  world.fibers.reserve(kUsualThreads);
  spare_stacks.reserve(kUsualThreads);
  Fiber& first = start_fiber(
      [](void*) -> void* {
        (*world_body)();
        return nullptr;
      },
      nullptr);
  world.current = &first;
  world.runs = true;
  go_to(world.outside, first.place);
  world.runs = false;
  for (const auto& fiber : world.fibers) {
    if (!fiber->done) fail("a thread is left at the end");
    spare_stacks.push_back(fiber->stack);
  }
  world.fibers.clear();
  world.ready.clear();
}

void fail(const char* format, ...) noexcept {
  world.runs = false;
  std::fflush(stdout);
  std::va_list arguments;
  va_start(arguments, format);
  std::fprintf(stderr, "simulation: ");
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "\nsimulation: seed %llu fails; see it again by --seed %llu\n",
               static_cast<unsigned long long>(world.seed),
               static_cast<unsigned long long>(world.seed));
  ::_exit(1);
}

namespace {

uint64_t to_ns(const timespec& time) {
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(time.tv_nsec);
}

// A mutex is used by its first word alone: 0 free, 1 taken. A static one begins as zeros.
int& word_of(pthread_mutex_t* mutex) { return *reinterpret_cast<int*>(mutex); }

int wait_on_condition(pthread_cond_t* condition, pthread_mutex_t* mutex, uint64_t deadline_ns) {
  // Not pthread_mutex_unlock(), which may switch: from here to the wait no signal must come.
  word_of(mutex) = 0;
  (void)wake(mutex, 1);
  const bool woken = wait_on(condition, deadline_ns);
  ::pthread_mutex_lock(mutex);
  return woken ? 0 : ETIMEDOUT;
}

long futex(uint32_t* word, int operation, uint32_t value, const timespec* timeout) {
  may_switch();
  switch (operation & ~(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME)) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET: {
      if (*word != value) {
        errno = EAGAIN;
        return -1;
      }
      uint64_t deadline_ns = kNever;
      if (timeout != nullptr) {
        const bool is_relative = (operation & ~FUTEX_PRIVATE_FLAG) == FUTEX_WAIT;
        deadline_ns = to_ns(*timeout) + (is_relative ? world.time_ns : 0);
      }
      if (wait_on(word, deadline_ns)) return 0;
      errno = ETIMEDOUT;
      return -1;
    }
    case FUTEX_WAKE: return static_cast<long>(wake(word, value));
    default: fail("a futex operation that the simulation does not know: %d", operation);
  }
}

}  // namespace
}  // namespace lumen::sim

// --- in place of the C library
// ---------------------------------------------------------------------- Before and after a world
// there is one thread: nothing waits, and the clock stands.

using namespace lumen::sim;  // NOLINT(google-build-using-namespace): of C's functions below

extern "C" {

int pthread_create(pthread_t* thread, const pthread_attr_t*, void* (*entry)(void*),
                   void* argument) {
  if (!world.runs) return EAGAIN;
  Fiber& fiber = start_fiber(entry, argument);
  world.ready.push_back(&fiber);
  *thread = reinterpret_cast<pthread_t>(&fiber);
  may_switch();
  return 0;
}

int pthread_join(pthread_t thread, void** result) {
  auto& fiber = *reinterpret_cast<Fiber*>(thread);
  while (!fiber.done) (void)wait_on(&fiber, kNever);
  if (result != nullptr) *result = fiber.result;
  return 0;
}

int pthread_setname_np(pthread_t, const char*) noexcept { return 0; }
int pthread_setschedparam(pthread_t, int, const sched_param*) noexcept { return 0; }
int pthread_setaffinity_np(pthread_t, size_t, const cpu_set_t*) noexcept { return 0; }
int sched_setaffinity(pid_t, size_t, const cpu_set_t*) noexcept { return 0; }

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  may_switch();
  while (word_of(mutex) != 0) {
    if (!world.runs) std::abort();
    (void)wait_on(mutex, kNever);
  }
  word_of(mutex) = 1;
  return 0;
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  if (word_of(mutex) != 0) return EBUSY;
  word_of(mutex) = 1;
  return 0;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  word_of(mutex) = 0;
  if (!world.runs) return 0;
  (void)wake(mutex, 1);
  may_switch();
  return 0;
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  return wait_on_condition(condition, mutex, kNever);
}
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  return wait_on_condition(condition, mutex, to_ns(*until));
}
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t,
                           const timespec* until) {
  return wait_on_condition(condition, mutex, to_ns(*until));
}
int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  if (world.runs) (void)wake(condition, 1);
  return 0;
}
int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  if (world.runs) (void)wake(condition, SIZE_MAX);
  return 0;
}
int pthread_cond_destroy(pthread_cond_t*) noexcept { return 0; }

int sched_yield() noexcept {
  yield();
  return 0;
}

// Six arguments are read, however many there are, as the kernel does it: some are the caller's
// stack.
[[gnu::no_sanitize("address")]] long syscall(long number, ...) noexcept {
  std::va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && world.runs) {
    return futex(reinterpret_cast<uint32_t*>(arguments[0]), static_cast<int>(arguments[1]),
                 static_cast<uint32_t>(arguments[2]),
                 reinterpret_cast<const timespec*>(arguments[3]));
  }
  using Real = long (*)(long, ...);
  static const Real real = reinterpret_cast<Real>(::dlsym(RTLD_NEXT, "syscall"));
  return real(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
              arguments[5]);
}

// Secrets too are the seed's, or keys would share buckets otherwise in each replay.
ssize_t getrandom(void* buffer, size_t length, unsigned) noexcept {
  auto* const bytes = static_cast<unsigned char*>(buffer);
  for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<unsigned char>(world.random.next());
  return static_cast<ssize_t>(length);
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  constexpr uint64_t kTickNs = 4'000'000;
  if (world.runs) {
    world.time_ns += 20 + world.random.below(20);
    may_switch();
  }
  uint64_t ns = world.time_ns;
  if (clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_REALTIME_COARSE) ns -= ns % kTickNs;
  time->tv_sec = static_cast<time_t>(ns / 1'000'000'000u);
  time->tv_nsec = static_cast<long>(ns % 1'000'000'000u);
  return 0;
}

}  // extern "C"
