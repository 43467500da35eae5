// Reservoir: the rows of one sample in slots of one size, each with the shapes of its tensors.
// Threads: take() by several at once; everything else by one, while none is in take().
// Memory: one mapping and the table of slots, by create(). Errors: create() says why.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/result.h>
#include <lumen/memory/mapping.h>
#include <lumen/models/infer_request.h>
#include <lumen/models/model_repository.h>
#include <lumen/tensor/tensor_view.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lumen::service {

class Reservoir {
 public:
  // `rows` slots of `slot_bytes` for rows of the model.
  [[nodiscard]] static Result<std::unique_ptr<Reservoir>> create(
      std::shared_ptr<models::Model> model, uint32_t rows, size_t slot_bytes);
  // Whether each row of a request is a row of the sample; otherwise the whole request is one.
  [[nodiscard]] static bool divides(const models::Model& model) noexcept;
  // Of one row with `data_bytes` in each of its inputs.
  [[nodiscard]] static size_t slot_bytes_for(std::span<const size_t> data_bytes) noexcept;

  // The rows of one request of the model. Waits for nobody.
  void take(const models::InferRequest& request) noexcept;

  [[nodiscard]] const models::Model& model() const noexcept { return *model_; }
  // relaxed, all: figures that order nothing
  [[nodiscard]] uint64_t seen() const noexcept { return seen_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t kept() const noexcept { return kept_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t left_out() const noexcept {
    return left_out_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] size_t bytes() const noexcept { return memory_.size(); }
  [[nodiscard]] std::vector<TensorView> row(uint32_t number) const;

 private:
  struct Slot {
    std::atomic<bool> is_taken{false};  // a thread writes there
    bool has_row = false;
  };
  // At the begin of a slot, one for each input; the tensors follow.
  struct Part {
    Shape shape;
    size_t bytes;
  };

  Reservoir(std::shared_ptr<models::Model> model, uint32_t rows, size_t slot_bytes, Mapping memory);
  [[nodiscard]] uint32_t rows_in(const models::InferRequest& request) const noexcept;
  void write(uint32_t slot, const models::InferRequest& request, uint32_t row,
             uint32_t rows) noexcept;
  [[nodiscard]] std::byte* at(uint32_t slot) const noexcept {
    return memory_.data() + size_t{slot} * slot_bytes_;
  }

  const std::shared_ptr<models::Model> model_;  // kept, so that no other has its address
  const bool is_divided_;                       // as divides() says
  const uint32_t rows_;
  const size_t slot_bytes_;
  const uint64_t seed_;
  const Mapping memory_;
  const std::unique_ptr<Slot[]> slots_;
  alignas(kFalseSharingRange) std::atomic<uint64_t> seen_{0};
  std::atomic<uint64_t> kept_{0};
  std::atomic<uint64_t> left_out_{0};
};

}  // namespace lumen::service
