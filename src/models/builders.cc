// See the header for threads, memory and errors.
#include <lumen/models/builders.h>

#include <lumen/base/cpu.h>

#include <algorithm>

namespace lumen::models {
namespace {

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
  std::unique_lock lock(mutex_);
  jobs_ = jobs;
  next_ = 0;
  done_ = 0;
  const size_t wanted = std::min<size_t>(jobs.size(), most_threads_);
  while (threads_.size() < wanted) threads_.emplace_back([this] { main(); });
  changed_.notify_all();
  changed_.wait(lock, [this] { return done_ == jobs_.size(); });
  jobs_ = {};
}

void Builders::main() {
  // Threads that a backend starts while it compiles inherit the name.
  name_this_thread("lumen-build");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || next_ < jobs_.size(); });
    if (stop_) return;
    take_jobs(lock);
  }
}

void Builders::take_jobs(std::unique_lock<std::mutex>& lock) {
  while (next_ < jobs_.size()) {
    const Job& job = jobs_[next_++];
    lock.unlock();
    const std::vector<uint32_t> usable = usable_cpus();
    std::vector<uint32_t> near;
    if (job.near_cpu) near = cpus_of_same_node(*job.near_cpu, usable);
    // Refused only where the cpuset has shrunk meanwhile: the memory may then lie on another node.
    if (!near.empty()) (void)restrict_this_thread(near);
    job.body();
    // Always: a backend's library may have moved the thread while it compiled.
    (void)restrict_this_thread(usable);
    lock.lock();
    ++done_;
  }
  changed_.notify_all();
}

}  // namespace lumen::models
