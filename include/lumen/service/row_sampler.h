// RowSampler: a step that keeps a random sample of the rows that clients send for one model, for
// `lumen record`. Every row since begin() is as likely to be in the sample as any other: algorithm
// R (Vitter, "Random Sampling with a Reservoir", 1985). Its random numbers are a hash of the row's
// number, so that several I/O threads need no shared generator.
//
//   control plane                                   an I/O thread, in before()
//     reservoir = made, touched memory
//     current_ = reservoir              (release)     current_                          (acquire)
//     ...                                             number of the row += 1
//     current_ = none                                 its slot, if no other thread is writing there:
//     wait until each I/O thread has ended its turn     copies the row, frees the slot   (release)
//     reads the rows, frees the memory
//
// tests/spin/row_sampler.pml is the protocol, statement by statement.
//
// Threads: before() of any I/O thread; everything else by one thread of the control plane.
// Memory: begin() maps and touches all of it; before() allocates nothing. Errors: Status.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/result.h>
#include <lumen/models/model_repository.h>
#include <lumen/service/dispatcher.h>
#include <lumen/tensor/tensor_view.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lumen::service {

class Reservoir;

class RowSampler final : public Step {
 public:
  // 16 times the rows that are usual for a calibration; the table of slots takes 1 MiB then.
  static constexpr uint32_t kMaxRows = 1u << 16;

  struct Count {
    uint64_t seen = 0;      // rows since begin(), but for those left out
    uint64_t kept = 0;      // rows that are in the sample
    uint64_t left_out = 0;  // larger than a slot, or not to be taken out of their request
    uint64_t bytes = 0;     // of memory that is reserved
  };

  // `max_bytes`: of one sample. `wait_for_turns` returns once each I/O thread has ended a turn that
  // it had begun before.
  RowSampler(uint64_t max_bytes, std::function<void()> wait_for_turns);
  ~RowSampler();
  RowSampler(const RowSampler&) = delete;
  RowSampler& operator=(const RowSampler&) = delete;

  // Up to `rows` rows of the model's requests from now on. kAlreadyExists: the sample before is not
  // dropped yet; kTooLarge: it does not fit max_bytes; kUnsupported: inputs that are no numbers.
  [[nodiscard]] Status begin(std::shared_ptr<models::Model> model, uint32_t rows);
  // No row comes after. Before rows are read. Idempotent.
  void end();
  // end(), and the rows are forgotten.
  void drop();
  // nullptr: nothing since begin().
  [[nodiscard]] const models::Model* model() const noexcept;
  [[nodiscard]] bool has_ended() const noexcept;
  [[nodiscard]] Count count() const noexcept;
  // The inputs of the `number`-th row that was kept, in the model's order; they lie in the sample.
  // After end(); empty: there is no such row.
  [[nodiscard]] std::vector<TensorView> row(uint32_t number) const;

  // --- Step -------------------------------------------------------------------------------------
  [[nodiscard]] StepOutcome before(Call& call) noexcept override;

 private:
  const uint64_t max_bytes_;
  const std::function<void()> wait_for_turns_;
  std::unique_ptr<Reservoir> reservoir_;
  alignas(kFalseSharingRange) std::atomic<Reservoir*> current_{nullptr};  // rows go there
};

}  // namespace lumen::service
