// See the header.
#include <lumen/models/trial_run.h>

#include <lumen/models/infer_request.h>

#include <cstring>

namespace lumen::models {
// Floats between -1 and 1, anything else 0 or 1 (an integer may be an index into a table).
void TrialRun::make_up(const TensorView& view, size_t first_element) {
  const size_t size = element_size(view.type);
  const size_t count = view.byte_size / size;
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits =
        (first_element + i) * 0x9E37'79B9'7F4A'7C15u;  // Weyl's sequence, the golden ratio
    bits ^= bits >> 31;
    std::byte* place = view.data + i * size;
    if (view.type == ElementType::kFp32) {
      const float value = static_cast<float>(bits >> 40) / 8388608.0f - 1.0f;
      std::memcpy(place, &value, sizeof(value));
    } else {
      std::memset(place, 0, size);
      const bool is_float = view.type == ElementType::kFp64 || view.type == ElementType::kFp16 ||
                            view.type == ElementType::kBf16;
      if (!is_float) *place = static_cast<std::byte>(bits >> 63);
    }
  }
}

bool TrialRun::run(Instance& instance, uint32_t first, uint32_t rows, int64_t free_size) {
  inputs_.clear();
  for (const TensorSpec& spec : metadata_.inputs) {
    if (!add_input(spec, first, rows, free_size)) return false;
  }
  return run_inputs(instance, inputs_);
}

bool TrialRun::run_inputs(Instance& instance, std::span<TensorView> inputs) {
  request_ = {};
  request_.model = model_;
  request_.memory = &memory_;
  request_.owner = &done_;
  request_.inputs = inputs;
  // relaxed: the wait below orders
  done_.store(0, std::memory_order_relaxed);
  const auto on_done = [](InferRequest& request) noexcept {
    auto* done = static_cast<std::atomic<uint32_t>*>(request.owner);
    // sync[warm_up.done]: release; the outputs are there
    done->store(1, std::memory_order_release);
    done->notify_all();
  };
  if (instance.start(request_, on_done) == StartOutcome::kPending) {
    // sync[warm_up.done]: acquire; pairs with on_done
    done_.wait(0, std::memory_order_acquire);
  }
  return request_.status.ok();
}

bool TrialRun::add_input(const TensorSpec& spec, uint32_t first, uint32_t rows, int64_t free_size) {
  if (spec.type == ElementType::kBytes) return false;  // no string can be made up
  TensorView view;
  view.type = spec.type;
  view.shape = spec.shape;
  if (has_batch_axis(metadata_)) view.shape[0] = rows;
  size_t elements = 1;
  for (size_t axis = 0; axis < view.shape.rank(); ++axis) {
    if (view.shape[axis] < 0) view.shape[axis] = free_size;
    if (view.shape[axis] < 1) return false;  // nothing to measure by
    elements *= static_cast<size_t>(view.shape[axis]);
  }
  view.byte_size = elements * element_size(spec.type);
  view.data = static_cast<std::byte*>(memory_.allocate(view.byte_size, 64));
  if (view.data == nullptr) return false;
  make_up(view, first * (elements / rows));
  inputs_.push_back(view);
  return true;
}

}  // namespace lumen::models
