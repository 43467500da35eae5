// See the header for threads, memory and errors.
#include "server/job_queue.h"

#include <lumen/base/cpu.h>

#include <chrono>
#include <utility>

namespace lumen::server {
namespace {

// Of now_ns(), which is CLOCK_MONOTONIC as the steady clock is.
std::chrono::steady_clock::time_point time_point(uint64_t ns) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns));
}

}  // namespace

JobQueue::JobQueue(std::string name, JobHandler& handler)
    : handler_(handler), thread_([this, name = std::move(name)] { run(name); }) {}

void JobQueue::submit(service::Job& job) noexcept {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(&job);
  }
  changed_.notify_one();
}

void JobQueue::join() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void JobQueue::wait(std::unique_lock<std::mutex>& lock) {
  const auto is_ready = [this] { return stop_ || !jobs_.empty(); };
  while (!is_ready()) {
    const uint64_t next_ns = handler_.next_ns();
    if (next_ns == UINT64_MAX) {
      changed_.wait(lock, is_ready);
    } else if (!changed_.wait_until(lock, time_point(next_ns), is_ready)) {
      lock.unlock();
      handler_.on_time();
      lock.lock();
    }
  }
}

void JobQueue::run(const std::string& name) {
  name_this_thread(name);
  std::unique_lock lock(mutex_);
  for (;;) {
    wait(lock);
    if (jobs_.empty()) return;
    service::Job& job = *jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    handler_.handle(job);
    job.owner->on_done(job);
    lock.lock();
  }
}

}  // namespace lumen::server
