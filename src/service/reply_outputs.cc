// See the header.
#include <lumen/service/reply_outputs.h>

#include <lumen/service/classification.h>
#include <lumen/service/documents.h>

#include <cstring>

namespace lumen::service {
namespace {

Status copy_to_place(const wire::ReplyOutput& output, std::span<std::byte> place) noexcept {
  const TensorView& tensor = output.tensor;
  if (tensor.byte_size > place.size()) {
    return Status::error(Code::kInvalidArgument,
                         "output '%.*s' has %zu bytes, shared_memory_byte_size is %zu; register "
                         "and name a larger place",
                         static_cast<int>(std::min<size_t>(output.name.size(), 128)),
                         output.name.data(), tensor.byte_size, place.size());
  }
  if (tensor.byte_size > 0) std::memcpy(place.data(), tensor.data, tensor.byte_size);
  return {};
}

}  // namespace

Result<std::span<const wire::ReplyOutput>> reply_outputs(
    const Call& call, const wire::InferHead& head, std::span<const std::span<std::byte>> places,
    Allocator& memory) noexcept {
  const models::InferRequest& infer = call.infer;
  const models::ModelMetadata& metadata = infer.model->metadata();
  const std::span<wire::ReplyOutput> outputs =
      memory.allocate_array<wire::ReplyOutput>(infer.outputs.size());
  if (outputs.size() != infer.outputs.size()) {
    return Status::error(Code::kTooLarge,
                         "the list of outputs does not fit a request's memory; raise "
                         "--max-body-bytes");
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const size_t index = infer.outputs_wanted.empty() ? i : infer.outputs_wanted[i];
    const models::TensorSpec& spec = metadata.outputs[index];
    wire::ReplyOutput& output = outputs[i];
    output = {.name = spec.name, .tensor = infer.outputs[i], .binary = head.binary_data_output};
    if (head.outputs.empty()) continue;
    const wire::InferOutput& wanted = head.outputs[i];
    output.binary = wanted.binary;
    if (wanted.classes > 0) {
      const Result<TensorView> classes = best_classes(
          spec.name, output.tensor, has_rows(*infer.model), wanted.classes, spec.labels, memory);
      if (!classes.ok()) return classes.status();
      output.tensor = *classes;
    } else if (wanted.shared.is_there()) {
      output.is_elsewhere = true;
      LUMEN_RETURN_IF_ERROR(copy_to_place(output, places[i]));
    }
  }
  LUMEN_RETURN_IF_ERROR(call.check_regions());
  return std::span<const wire::ReplyOutput>(outputs);
}

}  // namespace lumen::service
