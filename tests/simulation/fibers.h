// Fibers: every thread of a simulated program as a stackful fiber on one real thread, switched
// where the seed says. The program links definitions of its own of the calls by which threads wait
// (pthread_create, mutexes, condition variables, futexes) and of the clock (clock_gettime), so that
// production code runs unchanged: a worker that parks, a change that waits for it and the loop are
// all steps that the seed orders. The code between two such calls runs at one go: races there are
// for Spin and TSan.
// Threads: one. Memory: the heap. Errors: a simulation that can't go on ends the process and prints
// why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace lumen::sim {

// splitmix64: all chance in a simulated world comes from one of these.
class Random {
 public:
  explicit Random(uint64_t seed) noexcept : state_(seed) {}
  uint64_t next() noexcept {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // 0 to n - 1.
  size_t below(size_t n) noexcept { return static_cast<size_t>(next() % n); }
  bool one_in(size_t n) noexcept { return below(n) == 0; }

 private:
  uint64_t state_;
};

// Of the world that runs; begun anew by each run_world().
Random& random() noexcept;
// Of the simulated clock, which goes on with every look at it, every switch, and when all wait.
uint64_t time_ns() noexcept;
// A place where the kernel might run another thread.
void may_switch() noexcept;
// Whether may_switch() may hold a thread for milliseconds; true in a new world.
void allow_long_holds(bool allowed) noexcept;
// Of the thread that runs: no other that lives has the same.
const void* this_thread() noexcept;
// Another fiber's turn, if there is one.
void yield() noexcept;
// Until wake(key), or the time; false: the time. Never early.
bool wait_on(const void* key, uint64_t deadline_ns) noexcept;
// Wakes as many of those that wait on `key`, in an order that the seed picks.
size_t wake(const void* key, size_t count) noexcept;
// The fiber goes on at a later time of the simulated clock; nothing really sleeps.
void let_time_pass_ns(uint64_t ns) noexcept;

// Runs `body` and all threads that it starts, which it must join.
void run_world(uint64_t seed, const std::function<void()>& body);
// Of the world so far: two runs of one seed have the same.
uint64_t trace_hash() noexcept;
void note(uint64_t event) noexcept;  // into the hash
uint64_t switches() noexcept;

// Ends the process with status 1: prints the fault, the world, and how to see it again.
[[noreturn]] void fail(const char* format, ...) noexcept __attribute__((format(printf, 1, 2)));

}  // namespace lumen::sim
