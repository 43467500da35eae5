// See the header for threads, memory and errors.
#include "server/job_queue.h"

#include <lumen/base/cpu.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <new>
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
      on_time();
      lock.lock();
    }
  }
}

// The thread and the jobs behind this one are to live on.
void JobQueue::handle(service::Job& job) noexcept {
  try {
    if (job.form != nullptr) job.status = job.form->read(job);
    if (job.status.ok()) handler_.handle(job);
    if (job.form != nullptr && job.status.ok()) job.status = job.form->write(job);
  } catch (const std::bad_alloc&) {
    job.status = Status::error(Code::kUnavailable,
                               "the server has no memory left for this call; nothing has changed");
  } catch (const std::exception& fault) {  // of a library: a file that can't be read, for one
    job.status = Status::error(Code::kInternal, "%.300s", fault.what());
  }
}

// Its work is done at the next time, then.
void JobQueue::on_time() noexcept {
  try {
    handler_.on_time();
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "lumen: look at the repository: %.300s\n", fault.what());
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
    handle(job);
    job.owner->on_done(job);
    lock.lock();
  }
}

}  // namespace lumen::server
