// PendingRequest: an InferRequest with memory of its own and a way to wait until it is complete;
// counts how often it was completed.
// Threads: one test thread fills and waits, the engine completes. Memory: the heap.
// Errors: wait() blocks until the engine has answered.
#pragma once

#include <lumen/base/check.h>
#include <lumen/base/clock.h>
#include <lumen/memory/arena.h>
#include <lumen/models/infer_request.h>
#include <lumen/models/model_repository.h>

#include <atomic>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace lumen::models {

class PendingRequest {
 public:
  explicit PendingRequest(Model* model, size_t memory_bytes = 1 << 20)
      : arena_(std::move(Arena::create(memory_bytes)).value()) {
    request.model = model;
    request.memory = &arena_;
    request.owner = this;
    request.complete = &PendingRequest::on_complete;
    request.times.parsed_ns = now_ns();
    inputs_.reserve(limits::kMaxTensors);
  }
  PendingRequest(const PendingRequest&) = delete;
  PendingRequest& operator=(const PendingRequest&) = delete;

  // Copies `values` into the request's memory as the next input.
  template <typename T>
  PendingRequest& add_input(ElementType type, std::vector<int64_t> dimensions,
                            const std::vector<T>& values) {
    TensorView view;
    view.type = type;
    for (const int64_t d : dimensions) LUMEN_CHECK(view.shape.append(d));
    view.byte_size = values.size() * sizeof(T);
    view.data = static_cast<std::byte*>(arena_.allocate(view.byte_size, 64));
    LUMEN_CHECK(view.data != nullptr);
    if (view.byte_size > 0) std::memcpy(view.data, values.data(), view.byte_size);
    inputs_.push_back(view);
    request.inputs = inputs_;
    return *this;
  }
  void want_outputs(std::vector<uint16_t> indices) {
    wanted_ = std::move(indices);
    request.outputs_wanted = wanted_;
  }

  void wait() const {
    // sync[test.complete]: acquire; the outputs and the status are there
    completed_.wait(0, std::memory_order_acquire);
  }
  [[nodiscard]] uint32_t times_completed() const {
    return completed_.load(
        std::memory_order_acquire);  // sync[test.complete]: acquire; as in wait()
  }
  template <typename T>
  [[nodiscard]] std::vector<T> output(size_t index) const {
    const TensorView& view = request.outputs[index];
    std::vector<T> values(view.byte_size / sizeof(T));
    std::memcpy(values.data(), view.data, view.byte_size);
    return values;
  }
  [[nodiscard]] Arena& arena() { return arena_; }

  InferRequest request;

 private:
  static void on_complete(InferRequest& done) noexcept {
    auto* self = static_cast<PendingRequest*>(done.owner);
    // sync[test.complete]: release; pairs with wait()
    self->completed_.fetch_add(1, std::memory_order_release);
    self->completed_.notify_all();
  }

  Arena arena_;
  std::vector<TensorView> inputs_;
  std::vector<uint16_t> wanted_;
  std::atomic<uint32_t> completed_{0};
};

}  // namespace lumen::models
