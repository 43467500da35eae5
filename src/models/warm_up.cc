// See the header.
#include <lumen/models/warm_up.h>

#include <lumen/base/check.h>
#include <lumen/memory/request_memory.h>
#include <lumen/models/model_repository.h>
#include <lumen/models/trial_run.h>
#include <lumen/models/validate.h>

#include <algorithm>
#include <cstring>

namespace lumen::models {
namespace {

// Inputs and outputs of one request, as large as the largest that a trial run has; virtual until
// touched.
constexpr size_t kWarmUpBytes = size_t{256} << 20;
// A text without characters is a length of 0.
constexpr size_t kEmptyTextBytes = sizeof(uint32_t);

// Of an input whose shape has no negative size; nullopt: more than 64 bits count.
std::optional<size_t> bytes_of(const WarmUpInput& input) noexcept {
  if (input.data == WarmUpInput::Data::kGiven) return input.bytes.size();
  const std::optional<size_t> count = input.shape.element_count();
  const size_t element =
      input.type == ElementType::kBytes ? kEmptyTextBytes : element_size(input.type);
  size_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, element, &bytes)) return std::nullopt;
  return bytes;
}

const WarmUpInput* find_input(const WarmUpRequest& request, const std::string& name) noexcept {
  const auto found = std::ranges::find(request.inputs, name, &WarmUpInput::name);
  return found == request.inputs.end() ? nullptr : &*found;
}

// `reason` with its place in the file.
Status in_request(size_t index, const char* reason) noexcept {
  return Status::error(Code::kUnavailable, "config.json: key \"warmup[%zu]\": %s", index, reason);
}

Status check_request(const ModelMetadata& metadata, const WarmUpRequest& request) {
  for (const WarmUpInput& input : request.inputs) {
    if (std::ranges::find(metadata.inputs, input.name, &TensorSpec::name) ==
        metadata.inputs.end()) {
      return unknown_tensor(metadata, "input", metadata.inputs, input.name);
    }
  }
  std::vector<TensorView> views;
  size_t all_bytes = 0;
  for (const TensorSpec& spec : metadata.inputs) {
    const WarmUpInput* const input = find_input(request, spec.name);
    if (input == nullptr) {
      return Status::error(Code::kInvalidArgument, "got no input '%.128s', wanted all %zu inputs",
                           spec.name.c_str(), metadata.inputs.size());
    }
    const std::optional<size_t> bytes = bytes_of(*input);
    TensorView view;
    view.type = input->type;
    view.shape = input->shape;
    view.byte_size = bytes.value_or(SIZE_MAX);
    LUMEN_RETURN_IF_ERROR(check_input(metadata, spec, view, metadata.takes_empty_tensors));
    all_bytes += std::min(view.byte_size, kWarmUpBytes);
    if (all_bytes > kWarmUpBytes / 2) {
      return Status::error(Code::kInvalidArgument,
                           "got inputs of more than %zu MiB together, wanted at most that much",
                           kWarmUpBytes / 2 >> 20);
    }
    views.push_back(view);
  }
  return check_ties(metadata, views);
}

Status run_once(const WarmUpRequest& request, Model& model, Instance& instance,
                RequestMemory& memory) {
  memory.reset(kWarmUpBytes);
  std::vector<TensorView> views;
  for (const TensorSpec& spec : model.metadata().inputs) {
    const WarmUpInput* const input = find_input(request, spec.name);
    LUMEN_CHECK(input != nullptr);  // checked when the model was loaded
    TensorView view;
    view.type = input->type;
    view.shape = input->shape;
    view.byte_size = bytes_of(*input).value_or(0);
    view.data = static_cast<std::byte*>(memory.allocate(view.byte_size, 64));
    if (view.data == nullptr) return Status::error(Code::kTooLarge, "no room for its inputs");
    if (input->data == WarmUpInput::Data::kGiven) {
      std::ranges::copy(input->bytes, view.data);
    } else if (input->data == WarmUpInput::Data::kZeros || view.type == ElementType::kBytes) {
      std::memset(view.data, 0, view.byte_size);
    } else {
      TrialRun::make_up(view);
    }
    views.push_back(view);
  }
  TrialRun trial(model.metadata(), &model, memory);
  return trial.run_inputs(instance, views) ? Status() : trial.status();
}

}  // namespace

Status check_warm_up(const ModelMetadata& metadata, std::span<const WarmUpRequest> requests) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const Status status = check_request(metadata, requests[i]);
    if (!status.ok()) return in_request(i, status.c_message());
  }
  return {};
}

Status run_warm_up(Model& model, Instance& instance, std::span<const WarmUpRequest> requests) {
  if (requests.empty()) return {};
  Result<RequestMemory> memory = RequestMemory::create(kWarmUpBytes);
  if (!memory.ok()) return memory.status();
  for (size_t i = 0; i < requests.size(); ++i) {
    for (uint32_t run = 0; run < requests[i].count; ++run) {
      const Status status = run_once(requests[i], model, instance, *memory);
      if (!status.ok()) return in_request(i, status.c_message());
    }
  }
  return {};
}

}  // namespace lumen::models
