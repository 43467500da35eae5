// See the header for threads, memory and errors.
#include <lumen/models/builders.h>

#include <lumen/base/cpu.h>
#include <lumen/base/thread_clock.h>

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace lumen::models {
namespace {

// A thread in the background begins once it has had a CPU kTurns times, each time for kTurnNs. On a
// busy CPU the first turn comes soon, and the next, by its weight (3, usual threads have 1,024),
// after some 85 ms.
constexpr int kTurns = 4;
constexpr uint64_t kTurnNs = 250'000;
constexpr std::chrono::milliseconds kTurnsWait{20};
// Jobs of the background that are not done by then go on as usual ones, if the kernel lets them:
// the machine may have become busy since they began.
constexpr std::chrono::seconds kPatience{10};

// The CPUs of the node that `cpu` is on; empty where there is one node only, or it is not known.
std::vector<uint32_t> cpus_of_same_node(uint32_t cpu, const std::vector<uint32_t>& usable) {
  const std::vector<CpuPlace> places = cpu_places(usable);
  const auto own = std::ranges::find(places, cpu, &CpuPlace::cpu);
  if (own == places.end()) return {};
  std::vector<uint32_t> same;
  for (const CpuPlace& place : places) {
    if (place.node == own->node) same.push_back(place.cpu);
  }
  if (same.size() == places.size()) same.clear();
  return same;
}

void wait_for_idle_cpu() noexcept {
  // Refused by some sandboxes: the thread then works as a usual one.
  (void)run_this_thread_in_background();
  for (int turn = 0; turn < kTurns; ++turn) {
    ::sched_yield();
    const uint64_t begin_ns = thread_cpu_ns();
    while (thread_cpu_ns() - begin_ns < kTurnNs) {
    }
  }
}

void do_job(const Builders::Job& job) {
  const std::vector<uint32_t> usable = usable_cpus();
  std::vector<uint32_t> near;
  if (job.near_cpu) near = cpus_of_same_node(*job.near_cpu, usable);
  // Refused only where the cpuset has shrunk meanwhile: the memory may then lie on another node.
  if (!near.empty()) (void)restrict_this_thread(near);
  std::exception_ptr fault;
  try {
    job.body();
  } catch (...) {
    fault = std::current_exception();
  }
  // Always: a backend's library may have moved the thread while it compiled.
  (void)restrict_this_thread(usable);
  if (fault != nullptr) std::rethrow_exception(fault);
}

}  // namespace

Builders::~Builders() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Builders::run(std::span<const Job> jobs) {
  if (!try_run(jobs)) usual_->run(jobs);
}

bool Builders::try_run(std::span<const Job> jobs) {
  const std::lock_guard turn(turns_);
  std::unique_lock lock(mutex_);
  const size_t wanted = std::min<size_t>(jobs.size(), most_threads_);
  while (threads_.size() < wanted) threads_.emplace_back([this] { main(); });
  jobs_ = jobs;
  next_ = 0;
  done_ = 0;
  changed_.notify_all();
  const auto has_begun = [this] { return next_ > 0 || jobs_.empty(); };
  if (usual_ != nullptr && !changed_.wait_for(lock, kTurnsWait, has_begun)) {
    jobs_ = {};
    return false;
  }
  const auto is_done = [this] { return done_ == jobs_.size(); };
  if (usual_ != nullptr && !changed_.wait_for(lock, kPatience, is_done)) {
    // The threads of backends that work for the jobs, too. Refused to most users: the jobs then
    // take the time that they take.
    run_all_threads_as_usual();
  }
  changed_.wait(lock, is_done);
  jobs_ = {};
  if (fault_ != nullptr) std::rethrow_exception(std::exchange(fault_, nullptr));
  return true;
}

void Builders::main() {
  // Threads that a backend starts while it compiles inherit the name.
  name_this_thread("lumen-build");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || next_ < jobs_.size(); });
    if (stop_) return;
    if (usual_ != nullptr) {
      lock.unlock();
      wait_for_idle_cpu();
      lock.lock();
    }
    take_jobs(lock);
  }
}

void Builders::take_jobs(std::unique_lock<std::mutex>& lock) {
  while (next_ < jobs_.size()) {
    const Job& job = jobs_[next_++];
    lock.unlock();
    if (usual_ != nullptr) changed_.notify_all();  // run() waits for the beginning
    std::exception_ptr fault;
    try {
      do_job(job);
    } catch (...) {
      fault = std::current_exception();
    }
    lock.lock();
    if (fault != nullptr) fault_ = fault;
    ++done_;
  }
  changed_.notify_all();
}

}  // namespace lumen::models
