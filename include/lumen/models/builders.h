// Builders: the threads on which models are loaded and instances made. They live as long as the
// repository: on a new thread each time, the memory of instances would come from ever other heaps
// (malloc keeps one for each thread, up to 8 a CPU).
//
// Builders that work beside requests do so in the background (SCHED_IDLE), so that the kernel takes
// the CPU from them at once when a request comes. Where no CPU is idle a second's work would take
// them minutes: they begin only once they have got a CPU for a moment, and give their jobs to the
// usual builders otherwise.
// Threads: run() by any thread of the control plane; calls follow each other. Memory: a thread is
// started when it is first needed; idle ones sleep. Errors: a job tells by its
// captures; an exception of one of them (no memory is left) is run()'s.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace lumen::models {

class Builders {
 public:
  struct Job {
    std::function<void()> body;
    // Where its memory is to lie: near this CPU. Asked on machines with several NUMA nodes only.
    std::optional<uint32_t> near_cpu;
  };

  // `most_threads`: 1 for a backend that compiles on one thread at a time.
  explicit Builders(uint32_t most_threads) : most_threads_(most_threads) {}
  // In the background. `usual`: gets the jobs where no CPU is idle; outlives it.
  Builders(uint32_t most_threads, Builders& usual) : most_threads_(most_threads), usual_(&usual) {}
  ~Builders();
  Builders(const Builders&) = delete;
  Builders& operator=(const Builders&) = delete;

  // Returns when all are done; as many run at once as there are threads. A job must not wait for
  // another thread that calls run(): calls follow each other.
  void run(std::span<const Job> jobs);
  // False, in the background alone: no job was begun, since no CPU was idle.
  [[nodiscard]] bool try_run(std::span<const Job> jobs);

 private:
  void main();
  void take_jobs(std::unique_lock<std::mutex>& lock);

  const uint32_t most_threads_;
  Builders* const usual_ = nullptr;
  std::mutex turns_;  // held by the thread in run()
  std::mutex mutex_;
  std::condition_variable changed_;
  std::span<const Job> jobs_;
  size_t next_ = 0;
  size_t done_ = 0;
  std::exception_ptr fault_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lumen::models
