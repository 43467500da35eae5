// See the header. Any thread; no memory.
#include <lumen/tensor/bytes_tensor.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace lumen {

Status check_bytes_tensor(std::string_view tensor_name, const TensorView& tensor) noexcept {
  const size_t elements = tensor.shape.element_count().value_or(SIZE_MAX);
  size_t used = 0;
  size_t count = 0;
  while (used < tensor.byte_size && count < elements) {
    uint32_t length = 0;
    const size_t left = tensor.byte_size - used;
    if (left >= sizeof(length)) std::memcpy(&length, tensor.data + used, sizeof(length));
    if (left < sizeof(length) || length > left - sizeof(length)) {
      return Status::error(Code::kInvalidArgument,
                           "tensor '%.*s': BYTES element %zu at byte %zu passes the end of its %zu "
                           "bytes; each is a little-endian u32 length and that many bytes",
                           static_cast<int>(tensor_name.size()), tensor_name.data(), count, used,
                           tensor.byte_size);
    }
    used += sizeof(length) + length;
    ++count;
  }
  if (count == elements && used == tensor.byte_size) return {};
  return Status::error(Code::kInvalidArgument,
                       "tensor '%.*s': the first %zu BYTES elements take %zu of its %zu bytes, but "
                       "%s needs %zu elements and no byte more",
                       static_cast<int>(tensor_name.size()), tensor_name.data(), count, used,
                       tensor.byte_size, describe(tensor).text, elements);
}

TensorText describe(const TensorView& tensor) noexcept {
  TensorText out;
  const std::string_view type = element_type_name(tensor.type);
  int used = std::snprintf(out.text, sizeof(out.text), "%.*s [", static_cast<int>(type.size()),
                           type.data());
  for (size_t i = 0; i < tensor.shape.rank(); ++i) {
    const size_t offset = static_cast<size_t>(used);
    used += std::snprintf(out.text + offset, sizeof(out.text) - offset, "%s%lld", i == 0 ? "" : ",",
                          static_cast<long long>(tensor.shape[i]));
  }
  // Rank 8 with 20 characters each and the type: 175.
  std::snprintf(out.text + used, sizeof(out.text) - static_cast<size_t>(used), "]");
  return out;
}

}  // namespace lumen
