// Admission: whether a request can be answered within the latency budget, by the latest measured
// times. Ahead of it are, if each model has its fair share of the workers: its own model's
// requests, each of which waits for as much of the other models' as their weights say, and one run
// of each of these that has begun or is a moment earlier (the bound of start-time fair queuing); at
// most all requests that wait.
//
// Threads: fits() and charge() by any submitter, take_back() by the thread that completes; no lock,
// so two submitters at once may let in one request too many. Memory: at construction. Errors:
// fits() is false.
//
//   time since its first byte was read
//   + the requests ahead of it: mean and two deviations for each, shared by the runners
//   + its own run: mean and four deviations, since the budget is meant for the slow ones too (four
//     for each ahead would refuse what a queue evens out)
//   + the I/O thread's times: its wait to be read, its way back
//   + an eighth of all that, because the latest times are not the next ones: without it p99 of the
//     admitted requests was 101 % of the budget on a shared machine, with a sixteenth 93 to 105 %
//                                                                   must not exceed the budget
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/clock.h>
#include <lumen/base/limits.h>
#include <lumen/engine/engine_config.h>
#include <lumen/models/infer_request.h>
#include <lumen/models/model_repository.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lumen::engine {

class Admission {
 public:
  enum class Order : uint8_t { kOfArrival, kFair };
  // A budget of 0: everything fits and nothing is reckoned.
  Admission(uint64_t budget_us, size_t runners, Order order)
      : budget_ns_(budget_us * 1000),
        runners_(std::max<size_t>(runners, 1)),
        models_(order == Order::kFair && budget_us > 0 ? limits::kMaxModels : 0) {}

  [[nodiscard]] bool has_budget() const noexcept { return budget_ns_ > 0; }

  [[nodiscard]] bool fits(const models::InferRequest& request) const noexcept {
    if (!has_budget()) return true;
    // relaxed: an estimate
    const uint64_t all_ns = backlog_ns_.load(std::memory_order_relaxed) / runners_;
    // Nothing ahead: then it is the model that is slow, and only a run can show that it no longer
    // is.
    if (all_ns == 0) return true;
    const uint64_t now = now_ns();
    const uint64_t begun_ns = request.times.received_ns;
    const uint64_t used_ns = begun_ns == 0 || begun_ns > now ? 0 : now - begun_ns;
    const uint64_t own_ns = request.model->service_time().high_ns() + request.outside_ns;
    const auto fits_behind = [&](uint64_t ahead_ns) {
      const uint64_t estimate_ns = used_ns + ahead_ns + own_ns;
      return estimate_ns + estimate_ns / 8 <= budget_ns_;
    };
    return fits_behind(all_ns) ||
           (!models_.empty() && fits_behind(std::min(all_ns, fair_share_ahead_ns(*request.model))));
  }
  // Accepted: from now on it is ahead of others.
  void charge(models::InferRequest& request) noexcept {
    if (!has_budget()) return;
    const models::SmoothedTime& service = request.model->service_time();
    request.charged_ns = service.mean_ns() + 2 * service.deviation_ns();
    // relaxed, all: an estimate
    backlog_ns_.fetch_add(request.charged_ns, std::memory_order_relaxed);
    if (models_.empty()) return;
    Backlog& own = models_[request.model->index()];
    // relaxed, all: as above
    own.ns.fetch_add(request.charged_ns, std::memory_order_relaxed);
    own.run_ns.store(request.charged_ns, std::memory_order_relaxed);
    own.weight.store(request.model->scheduling().weight, std::memory_order_relaxed);
  }
  // Complete, or not accepted after all.
  void take_back(const models::InferRequest& request) noexcept {
    if (!has_budget()) return;
    // relaxed, both: an estimate
    backlog_ns_.fetch_sub(request.charged_ns, std::memory_order_relaxed);
    if (models_.empty()) return;
    models_[request.model->index()].ns.fetch_sub(request.charged_ns, std::memory_order_relaxed);
  }

 private:
  // Of one model; `run_ns` and `weight` as they were with its last request.
  struct alignas(kCacheLine) Backlog {
    std::atomic<uint64_t> ns{0};
    std::atomic<uint64_t> run_ns{0};
    std::atomic<uint32_t> weight{1};
  };
  [[nodiscard]] uint64_t fair_share_ahead_ns(const models::Model& model) const noexcept {
    const uint64_t weight = model.scheduling().weight;
    const uint64_t own_ns =
        models_[model.index()].ns.load(std::memory_order_relaxed);  // relaxed: so
    uint64_t ahead_ns = own_ns;
    for (uint32_t i = 0; i < models_.size(); ++i) {
      const Backlog& other = models_[i];
      const uint64_t others_ns = other.ns.load(std::memory_order_relaxed);  // relaxed: an estimate
      if (i == model.index() || others_ns == 0) continue;
      // relaxed, both: an estimate
      const uint64_t share_ns = own_ns * other.weight.load(std::memory_order_relaxed) / weight;
      const uint64_t run_ns = other.run_ns.load(std::memory_order_relaxed);
      ahead_ns += std::min(others_ns, share_ns + run_ns);
    }
    return ahead_ns / runners_;
  }

  const uint64_t budget_ns_;
  const size_t runners_;
  // Service time of all that was accepted and is not complete.
  alignas(kFalseSharingRange) std::atomic<uint64_t> backlog_ns_{0};
  std::vector<Backlog> models_;  // by Model::index(); empty where they have no shares
};

// By the order in which the workers take requests.
[[nodiscard]] inline Admission::Order order_of(const EngineConfig& config) noexcept {
  return has_model_queues(config.queue_type) && config.policy == Policy::kFair
             ? Admission::Order::kFair
             : Admission::Order::kOfArrival;
}

}  // namespace lumen::engine
