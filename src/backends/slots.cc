// See the header.
#include "backends/slots.h"

#include <lumen/base/check.h>
#include <lumen/base/cpu.h>

#include <utility>

namespace lumen::backends {

using models::Instance;

Slots::Slots(std::vector<std::unique_ptr<Instance>> slots) : slots_(std::move(slots)) {
  LUMEN_CHECK(!slots_.empty());
  jobs_.resize(slots_.size());
  for (const auto& slot : slots_) threads_.emplace_back([this, &slot] { run_slot(*slot); });
}

Slots::~Slots() {
  {
    const std::lock_guard lock(mutex_);
    LUMEN_CHECK(waiting_ == 0);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

models::StartOutcome Slots::start(models::InferRequest& request, Done done) noexcept {
  {
    const std::lock_guard lock(mutex_);
    LUMEN_CHECK(waiting_ < jobs_.size());
    jobs_[(first_ + waiting_) % jobs_.size()] = {&request, done};
    ++waiting_;
  }
  changed_.notify_one();
  return models::StartOutcome::kPending;
}

void Slots::run_slot(Instance& instance) {
  name_this_thread("lumen-device");
  for (;;) {
    const Job job = take();
    if (job.request == nullptr) return;
    LUMEN_CHECK(instance.start(*job.request, job.done) == models::StartOutcome::kDone);
    job.done(*job.request);
  }
}

Slots::Job Slots::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_ > 0 || stopping_; });
  if (waiting_ == 0) return {};
  const Job job = jobs_[first_];
  first_ = (first_ + 1) % jobs_.size();
  --waiting_;
  return job;
}

}  // namespace lumen::backends
