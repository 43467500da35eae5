// ExpressLane: an additional worker for models that are light beside others and yet too long for an
// I/O thread (queue type `auto`). While as many heavy requests are on their way as there are
// workers, each worker may be in the middle of a long run; light requests go to this one then. It
// is pinned to no CPU (it stays on those of a list in pin_threads): the kernel wakes it on one that
// is idle, or, if none is, lets it in at once beside a worker: it asks for a short time slice, and
// a thread that asks for less is served sooner and gets no more in all (EEVDF, Linux 6.12 on;
// before that a thread that has slept goes before one that has run for long, most of the time).
//
// Threads: as WorkSource's and Worker's; takes() by any submitter. Memory: all of it at construction and in its
// runner. Errors: none.
#pragma once

#include "engine/admission.h"
#include "engine/model_queue_source.h"
#include "engine/worker.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

namespace lumen::engine {

class ExpressLane {
 public:
  // Heavier runs take more than about a third of the time slice that the kernel gives a thread that
  // asks for none (3 ms). A request that waits for a lighter run hardly waits longer than for the
  // kernel's turn.
  static constexpr uint64_t kMostNs = 1'000'000;
  static constexpr uint64_t kTimeSliceNs = 100'000;  // the least that the kernel grants
  // More wait with the other workers: the kernel shares the CPU of this one's runs by threads, and
  // no model's weight counts. Of a model with more requests than this some then pass others.
  static constexpr uint32_t kMostOutstanding = 16;

  // `options`: of the first worker but for the differences.
  ExpressLane(const EngineConfig& config, uint32_t submitters, WorkerOptions options,
              const std::atomic<bool>& closed)
      : workers_(config.thread_count),
        source_(config.policy, config.queue_capacity, submitters, 1),
        admission_(config.latency_budget_us, 1, order_of(config)),
        worker_(worker_options(std::move(options)), source_, closed) {}

  [[nodiscard]] bool takes(const models::InferRequest& request) const noexcept {
    // relaxed, both: hints; a moment late, and a light request waits for one heavy run
    return !is_heavy(request) && heavy_.load(std::memory_order_relaxed) >= workers_ &&
           outstanding_.load(std::memory_order_relaxed) < kMostOutstanding &&
           worker_.runner().has_instance(*request.model);
  }
  [[nodiscard]] bool push(uint32_t submitter, models::InferRequest& request) noexcept {
    outstanding_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a hint for the others
    if (source_.push(submitter, request)) return true;
    outstanding_.fetch_sub(1, std::memory_order_relaxed);  // relaxed: as above
    return false;
  }
  // A request of unknown cost may be heavy.
  [[nodiscard]] static bool is_heavy(const models::InferRequest& request) noexcept {
    return request.expected_ns == 0 || request.expected_ns > kMostNs;
  }
  [[nodiscard]] static bool may_take(const models::Model& model) noexcept {
    const uint64_t ns = model.service_time().mean_ns();
    const models::ModelScheduling& scheduling = model.scheduling();
    if (scheduling.is_on_some_workers() || scheduling.queue_type == models::QueueType::kInline)
      return false;
    return model.state() == models::ModelState::kReady && !model.traits().shares_instances &&
           ns != 0 && ns <= kMostNs;
  }

  // Of the other workers: heavy requests that they were given and that are not complete.
  [[nodiscard]] std::atomic<uint32_t>& heavy() noexcept { return heavy_; }
  // Of this one: requests that it was given and that are not complete.
  [[nodiscard]] const std::atomic<uint32_t>& outstanding() const noexcept { return outstanding_; }
  [[nodiscard]] WorkSource& source() noexcept { return source_; }
  [[nodiscard]] Admission& admission() noexcept { return admission_; }
  [[nodiscard]] Worker& worker() noexcept { return worker_; }

 private:
  [[nodiscard]] WorkerOptions worker_options(WorkerOptions options) noexcept {
    options.index = workers_;  // the next after theirs
    options.place = 0;
    options.may_spin = false;  // on a CPU that another worker may need
    options.time_slice_ns = kTimeSliceNs;
    options.load = {
        .outstanding = &outstanding_, .admission = &admission_, .shares = source_.shares()};
    return options;
  }

  const uint32_t workers_;
  ModelQueueSource<> source_;
  Admission admission_;
  alignas(kFalseSharingRange) std::atomic<uint32_t> heavy_{0};
  alignas(kFalseSharingRange) std::atomic<uint32_t> outstanding_{0};
  Worker worker_;
};

}  // namespace lumen::engine
