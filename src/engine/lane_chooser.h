// LaneChooser: by which lane a request goes. OneLane: by the only one. AutoChooser (queue type
// `auto`): by the expected cost of its run.
//
//   a run costs less than the hand-off to a worker ──► the I/O thread (InlineChoice)
//   it is light, and heavy ones keep the workers   ──► the express worker
//   else                                           ──► the workers
//
// A model's own queue_type in its config.json comes first.
// Threads: usual() and choose() by any submitter, for its own requests; the others on the control
// plane. Memory: at construction. Errors: none.
#pragma once

#include "engine/express_lane.h"
#include "engine/inline_choice.h"
#include "engine/inline_lane.h"
#include "engine/lane.h"
#include "engine/worker_lane.h"

#include <cstdint>
#include <string>

namespace lumen::engine {

class LaneChooser {
 public:
  struct Choice {
    Lane* lane;
    models::QueueType type;
  };

  virtual ~LaneChooser() = default;
  // For a request of the model's usual size.
  [[nodiscard]] virtual Choice usual(uint32_t submitter, const models::Model& model) noexcept = 0;
  // For this request, in which it notes its expected cost and the queue type.
  [[nodiscard]] virtual Lane& choose(uint32_t submitter, models::InferRequest& request,
                                     uint64_t input_bytes) noexcept = 0;
  // Why usual() is so, in words with numbers.
  [[nodiscard]] virtual std::string explain(const models::Model& model) = 0;
  // Another model may have had its index before. No request of it can come meanwhile.
  virtual void forget(const models::Model& model) noexcept { (void)model; }
};

class OneLane final : public LaneChooser {
 public:
  OneLane(Lane& lane, models::QueueType type) noexcept : choice_{&lane, type} {}
  [[nodiscard]] Choice usual(uint32_t, const models::Model&) noexcept override { return choice_; }
  [[nodiscard]] Lane& choose(uint32_t submitter, models::InferRequest& request,
                             uint64_t input_bytes) noexcept override;
  [[nodiscard]] std::string explain(const models::Model&) override {
    return "the engine's queue_type";
  }

 private:
  const Choice choice_;
};

class AutoChooser final : public LaneChooser {
 public:
  AutoChooser(WorkerLane& workers, ExpressLane& express, InlineLane& inline_lane) noexcept
      : workers_(workers), express_(express), inline_(inline_lane) {}

  // Which models the lanes get instances of; the workers' times say which the I/O threads get.
  [[nodiscard]] static bool is_for_workers(const models::Model& model) noexcept;
  [[nodiscard]] static bool is_for_submitters(const models::Model& model) noexcept;
  // Models that the I/O threads run are packed there, and those with a queue_type of their own as
  // that says.
  [[nodiscard]] static bool is_packed_by_workers(const models::Model& model) noexcept;

  [[nodiscard]] Choice usual(uint32_t submitter, const models::Model& model) noexcept override;
  [[nodiscard]] Lane& choose(uint32_t submitter, models::InferRequest& request,
                             uint64_t input_bytes) noexcept override;
  [[nodiscard]] std::string explain(const models::Model& model) override;
  void forget(const models::Model& model) noexcept override { inline_choice_.reset(model.index()); }

 private:
  [[nodiscard]] Choice choose_for(uint32_t submitter, const models::Model& model,
                                  uint64_t input_bytes, uint64_t expected_ns) noexcept;

  WorkerLane& workers_;
  ExpressLane& express_;
  InlineLane& inline_;
  InlineChoice inline_choice_;
};

}  // namespace lumen::engine
