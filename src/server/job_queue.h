// JobQueue: a thread of the control plane that answers clients' jobs one after the other, in the
// order in which they came.
// Threads: submit() from any I/O thread; the handler's calls by the queue's own thread; join() by
// its owner. Memory: the heap. Errors: by the status of the job.
#pragma once

#include <lumen/service/job.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace lumen::server {

// The work of the thread.
class JobHandler {
 public:
  // Fills in the job's status and document.
  virtual void handle(service::Job& job) = 0;
  // When on_time() is to be called, by now_ns(), if no job comes before; UINT64_MAX: never.
  [[nodiscard]] virtual uint64_t next_ns() const { return UINT64_MAX; }
  virtual void on_time() {}

 protected:
  ~JobHandler() = default;
};

class JobQueue final : public service::JobThread {
 public:
  // `name`: of the thread. `handler` outlives it.
  JobQueue(std::string name, JobHandler& handler);
  ~JobQueue() { join(); }
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  void submit(service::Job& job) noexcept override;
  // After the I/O threads have ended. Idempotent.
  void join();

 private:
  void run(const std::string& name);
  void handle(service::Job& job) noexcept;
  void on_time() noexcept;
  // Until there is a job, or none comes any more.
  void wait(std::unique_lock<std::mutex>& lock);

  JobHandler& handler_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<service::Job*> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lumen::server
