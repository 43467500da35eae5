// InlineLane: the submitters' own threads run the models.
// Threads, memory, errors: see lane.h.
#pragma once

#include "engine/fair_shares.h"
#include "engine/lane.h"

#include <atomic>
#include <memory>
#include <vector>

namespace lumen::engine {

class InlineLane final : public Lane {
 public:
  // `serves`: models that the submitters' threads get instances of. `are_pinned`: the threads are
  // pinned to CPUs; not beside workers, which have the CPUs: there the kernel places the threads.
  // `shares`: of the workers beside it, told the time of each run; may be nullptr.
  InlineLane(const LaneContext& context, ModelFilter serves, bool are_pinned, FairShares* shares);

  [[nodiscard]] bool push(uint32_t submitter, models::InferRequest& request) noexcept override;
  [[nodiscard]] bool has_room(uint32_t submitter, const models::Model&) const noexcept override {
    return runner(submitter).has_space();
  }
  size_t end_turn(uint32_t submitter) noexcept override;
  [[nodiscard]] bool has_runs(uint32_t submitter) const noexcept override {
    return runner(submitter).has_waiting();
  }
  [[nodiscard]] uint64_t next_ns(uint32_t submitter) const noexcept override {
    return runner(submitter).next_ns();
  }
  [[nodiscard]] size_t room(uint32_t submitter) const noexcept override {
    return runner(submitter).room();
  }
  [[nodiscard]] bool is_done(uint32_t submitter) const noexcept override {
    return runner(submitter).is_done();
  }

  [[nodiscard]] Status add(std::span<models::Model* const> models, models::Builders& builders,
                           Runner::OnFailure on_failure) override;
  void finish(uint32_t submitter) noexcept override;
  void set_wake_sink(uint32_t submitter, models::CompletionSink* sink) noexcept override;

  [[nodiscard]] bool has_instance(uint32_t submitter, const models::Model& model) const noexcept {
    return runner(submitter).has_instance(model);
  }

 private:
  struct Place final : RoomListener {
    std::unique_ptr<Runner> runner;
    std::atomic<models::CompletionSink*> wake_sink{nullptr};
    void on_room() noexcept override {
      // sync[inline_lane.wake_sink]: acquire; the sink is whole
      models::CompletionSink* sink = wake_sink.load(std::memory_order_acquire);
      if (sink != nullptr) sink->wake();
    }
  };
  [[nodiscard]] Runner& runner(uint32_t submitter) const noexcept { return *runners_[submitter]; }

  const ModelFilter serves_;
  EngineConfig config_;  // the scheduler's, with the queue type `inline`
  std::vector<std::unique_ptr<Place>> places_;
};

}  // namespace lumen::engine
