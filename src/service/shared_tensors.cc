// See the header.
#include <lumen/service/shared_tensors.h>

#include <lumen/base/cache_line.h>

#include <cstdint>
#include <cstring>

namespace lumen::service {

bool align(TensorView& tensor, Allocator& memory) noexcept {
  const size_t alignment = std::max<size_t>(element_size(tensor.type), 1);
  if (reinterpret_cast<uintptr_t>(tensor.data) % alignment == 0) return true;
  auto* const copy = static_cast<std::byte*>(memory.allocate(tensor.byte_size, kCacheLine));
  if (copy == nullptr) return false;
  std::memcpy(copy, tensor.data, tensor.byte_size);
  tensor.data = copy;
  return true;
}

Status bind_shared_input(Intake& intake, Call& call, Binder& binder, const wire::InferInput& input,
                         uid_t user) noexcept {
  const Result<std::span<std::byte>> place = intake.use_region(call, input.shared, user);
  if (!place.ok()) return place.status();
  TensorView tensor = input.tensor;
  tensor.data = place->data();
  if (!align(tensor, *call.scratch)) {
    return Status::error(Code::kTooLarge, "the request's memory has no room for its inputs");
  }
  return binder.input(input.name, tensor, InputBytes::kShared);
}

Result<std::span<std::span<std::byte>>> take_output_places(
    Intake& intake, Call& call, std::span<const wire::InferOutput> outputs, uid_t user) noexcept {
  using OutputPlaces = std::span<std::span<std::byte>>;
  const auto is_shared = [](const wire::InferOutput& one) { return one.shared.is_there(); };
  if (std::ranges::none_of(outputs, is_shared)) return OutputPlaces();
  const OutputPlaces places = call.scratch->allocate_array<std::span<std::byte>>(outputs.size());
  if (places.size() != outputs.size()) {
    return Status::error(Code::kTooLarge, "the request's memory has no room for its outputs");
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!is_shared(outputs[i])) continue;
    const Result<std::span<std::byte>> place = intake.use_region(call, outputs[i].shared, user);
    if (!place.ok()) return place.status();
    places[i] = *place;
  }
  return places;
}

}  // namespace lumen::service
