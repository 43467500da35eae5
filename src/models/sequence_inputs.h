// The inputs that a server feeds a model of sequences: states and controls, for the rows of a run.
// Threads: those of the run. Memory: the request's scratch memory, but for a state that is bound
// where it lies. Errors: a Status that names the part without room.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/models/infer_request.h>
#include <lumen/models/sequence_options.h>
#include <lumen/models/sequence_turn.h>

#include <cstddef>
#include <span>

namespace lumen::models {

// The sequences of one run by its rows: those of its members, or of the one request.
class TurnsOfRun {
 public:
  explicit TurnsOfRun(const InferRequest& request) noexcept
      : members_(request.members), alone_(request.turn) {}
  [[nodiscard]] size_t size() const noexcept { return members_.empty() ? 1 : members_.size(); }
  // nullptr: of no sequence, as a row that fills the run up.
  [[nodiscard]] const SequenceTurn* operator[](size_t row) const noexcept {
    if (members_.empty()) return row == 0 ? alone_ : nullptr;
    return row < members_.size() ? members_[row]->turn : nullptr;
  }

 private:
  std::span<InferRequest* const> members_;
  const SequenceTurn* alone_;
};

[[nodiscard]] Status no_room_for(const char* part, size_t bytes) noexcept;

[[nodiscard]] Result<TensorView> state_input(const SequencePlan& plan, const StateTensor& state,
                                             const TurnsOfRun& turns, size_t rows,
                                             Allocator& memory) noexcept;
[[nodiscard]] Result<TensorView> control_input(const ControlTensor& control,
                                               const TurnsOfRun& turns, size_t rows,
                                               Allocator& memory) noexcept;

}  // namespace lumen::models
