// See the header.
#include "backends/python/step_message.h"

#include <lumen/tensor/bytes_tensor.h>
#include <lumen/tensor/type_text.h>

#include "backends/failure.h"

#include <array>
#include <cstring>
#include <optional>
#include <string>

namespace lumen::backends::python {
namespace {

using models::TensorSpec;
using Words = std::array<int64_t, kWordsOfATensor>;

constexpr size_t aligned(size_t bytes) noexcept {
  return (bytes + kMessageAlign - 1) & ~(kMessageAlign - 1);
}

constexpr size_t table_bytes(size_t tensors) noexcept { return aligned(tensors * sizeof(Words)); }

Status broken(const models::ModelMetadata& metadata, const char* reason) {
  return Status::error(Code::kInternal, "model '%s': its process has sent a broken reply: %s",
                       metadata.name.c_str(), reason);
}

bool fits(const TensorSpec& spec, const Shape& shape) noexcept {
  return !spec.has_rank || spec.shape.accepts(shape);
}

// The tensor of `words`, whose bytes begin at `at`.
Status read_tensor(std::span<const std::byte> message, const Words& words, size_t at,
                   const models::ModelMetadata& metadata, const TensorSpec& spec,
                   TensorView& view) {
  if (words[0] < 0 || static_cast<uint64_t>(words[0]) > limits::kMaxRank) {
    return broken(metadata, "a rank that no tensor has");
  }
  for (size_t axis = 0; axis < static_cast<size_t>(words[0]); ++axis) {
    if (words[1 + axis] < 0 || !view.shape.append(words[1 + axis])) {
      return broken(metadata, "a negative size of an axis");
    }
  }
  view.type = spec.type;
  view.byte_size = static_cast<size_t>(words.back());
  if (words.back() < 0 || at > message.size() || view.byte_size > message.size() - at) {
    return broken(metadata, "a tensor behind its end");
  }
  view.data = const_cast<std::byte*>(message.data()) + at;
  if (!fits(spec, view.shape)) {
    return Status::error(Code::kInternal, "model '%s': output '%s': got %s, its config.json has %s",
                         metadata.name.c_str(), spec.name.c_str(),
                         type_text(spec.type, view.shape).c_str(),
                         type_text(spec.type, spec.shape).c_str());
  }
  if (spec.type == ElementType::kBytes) return {};  // its lengths are checked in the copy
  const std::optional<uint64_t> elements = view.shape.element_count();
  if (!elements || view.byte_size != *elements * element_size(spec.type)) {
    return broken(metadata, "bytes that are not those of the shape");
  }
  return {};
}

}  // namespace

size_t message_bytes(std::span<const TensorView> tensors) noexcept {
  size_t bytes = table_bytes(tensors.size());
  for (const TensorView& tensor : tensors) bytes += aligned(tensor.byte_size);
  return bytes;
}

void write_message(std::span<const TensorView> tensors, std::span<std::byte> message) noexcept {
  size_t at = table_bytes(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& tensor = tensors[i];
    Words words{};
    words[0] = static_cast<int64_t>(tensor.shape.rank());
    for (size_t axis = 0; axis < tensor.shape.rank(); ++axis) words[1 + axis] = tensor.shape[axis];
    words.back() = static_cast<int64_t>(tensor.byte_size);
    std::memcpy(message.data() + i * sizeof(words), words.data(), sizeof(words));
    if (tensor.byte_size > 0) std::memcpy(message.data() + at, tensor.data, tensor.byte_size);
    at += aligned(tensor.byte_size);
  }
}

Status read_reply(std::span<const std::byte> message, const models::ModelMetadata& metadata,
                  models::InferRequest& request) noexcept {
  const size_t count = metadata.outputs.size();
  if (message.size() < table_bytes(count)) return broken(metadata, "it is too short");
  const bool wants_all = request.outputs_wanted.empty();
  const size_t wanted = wants_all ? count : request.outputs_wanted.size();
  const std::span<TensorView> views = request.list_memory().allocate_array<TensorView>(wanted);
  if (views.size() != wanted) return no_room("(list)", wanted * sizeof(TensorView));
  size_t at = table_bytes(count);
  for (size_t i = 0; i < count; ++i) {
    Words words;
    std::memcpy(words.data(), message.data() + i * sizeof(words), sizeof(words));
    const TensorSpec& spec = metadata.outputs[i];
    TensorView theirs;
    LUMEN_RETURN_IF_ERROR(read_tensor(message, words, at, metadata, spec, theirs));
    at += aligned(theirs.byte_size);
    std::byte* copy = nullptr;
    for (size_t position = 0; position < wanted; ++position) {
      if ((wants_all ? position : request.outputs_wanted[position]) != i) continue;
      if (copy == nullptr && theirs.data != nullptr && theirs.byte_size > 0) {
        copy = static_cast<std::byte*>(request.memory->allocate(theirs.byte_size, kMessageAlign));
        if (copy == nullptr) return no_room(spec.name, theirs.byte_size);
        std::memcpy(copy, theirs.data, theirs.byte_size);
      }
      views[position] = theirs;
      views[position].data = copy;
      if (spec.type == ElementType::kBytes) {
        LUMEN_RETURN_IF_ERROR(check_bytes_tensor(spec.name, views[position]));
      }
    }
  }
  request.outputs = views;
  return {};
}

}  // namespace lumen::backends::python
