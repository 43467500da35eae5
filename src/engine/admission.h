// Admission: whether a request can be answered within the latency budget, by what was measured lately.
// Threads: fits() and charge() by any submitter, take_back() by whoever completes; no lock, so two
// submitters at once may let in one request too many. Memory: none. Errors: fits() is false.
//
//   time since its first byte was read
//   + what is ahead of it: mean and two deviations for each, shared by the runners
//   + its own run: mean and four deviations, since the budget is meant for the slow ones too (four
//     for each ahead would refuse what a queue evens out)
//   + what the I/O thread knows: its wait to be read, its way back
//   + an eighth of all that, because what was measured lately is not what will be: without it p99
//     of what was let in was 101 % of the budget on a shared machine, with a sixteenth 93 to 105 %
//                                                                         must not exceed the budget
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/clock.h>
#include <lumen/engine/infer_request.h>
#include <lumen/engine/model_repository.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lumen::engine {

class Admission {
 public:
  // A budget of 0: everything fits and nothing is reckoned.
  Admission(uint64_t budget_us, size_t runners) noexcept
      : budget_ns_(budget_us * 1000), runners_(std::max<size_t>(runners, 1)) {}

  [[nodiscard]] bool has_budget() const noexcept { return budget_ns_ > 0; }

  [[nodiscard]] bool fits(const InferRequest& request) const noexcept {
    if (!has_budget()) return true;
    // relaxed: an estimate
    const uint64_t ahead_ns = backlog_ns_.load(std::memory_order_relaxed) / runners_;
    // Nothing ahead: then it is the model that is slow, and only a run can show that it no longer is.
    if (ahead_ns == 0) return true;
    const uint64_t now = now_ns();
    const uint64_t begun_ns = request.times.received_ns;
    const uint64_t used_ns = begun_ns == 0 || begun_ns > now ? 0 : now - begun_ns;
    const uint64_t own_ns = request.model->service_time().high_ns() + request.outside_ns;
    const uint64_t estimate_ns = used_ns + ahead_ns + own_ns;
    return estimate_ns + estimate_ns / 8 <= budget_ns_;
  }
  // Accepted: from now on it is ahead of others.
  void charge(InferRequest& request) noexcept {
    if (!has_budget()) return;
    const SmoothedTime& service = request.model->service_time();
    request.charged_ns = service.mean_ns() + 2 * service.deviation_ns();
    // relaxed: an estimate
    backlog_ns_.fetch_add(request.charged_ns, std::memory_order_relaxed);
  }
  // Complete, or not accepted after all.
  void take_back(const InferRequest& request) noexcept {
    if (!has_budget()) return;
    // relaxed: an estimate
    backlog_ns_.fetch_sub(request.charged_ns, std::memory_order_relaxed);
  }

 private:
  const uint64_t budget_ns_;
  const size_t runners_;
  // Service time of all that was accepted and is not complete.
  alignas(kFalseSharingRange) std::atomic<uint64_t> backlog_ns_{0};
};

}  // namespace lumen::engine
