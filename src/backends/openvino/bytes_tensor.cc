// Bodies of bytes_tensor.h. Any thread; allocates what std::string allocates.
#include "backends/openvino/bytes_tensor.h"

#include <cstdint>
#include <cstring>

namespace lumen::backends::openvino {

Status read_bytes_tensor(const std::string& tensor_name, std::span<const std::byte> bytes,
                         std::span<std::string> texts) {
  const auto wrong = [&](size_t element) {
    return Status::error(Code::kInvalidArgument,
                         "input '%s': the lengths of its BYTES elements do not add up at element "
                         "%zu of %zu (%zu bytes in all)",
                         tensor_name.c_str(), element, texts.size(), bytes.size());
  };
  size_t position = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    uint32_t length = 0;
    if (bytes.size() - position < sizeof(length)) return wrong(i);
    std::memcpy(&length, bytes.data() + position, sizeof(length));
    position += sizeof(length);
    if (bytes.size() - position < length) return wrong(i);
    texts[i].assign(reinterpret_cast<const char*>(bytes.data() + position), length);
    position += length;
  }
  return position == bytes.size() ? Status() : wrong(texts.size());
}

size_t bytes_tensor_size(std::span<const std::string> texts) noexcept {
  size_t size = 0;
  for (const std::string& text : texts) size += sizeof(uint32_t) + text.size();
  return size;
}

void write_bytes_tensor(std::span<const std::string> texts, std::byte* out) noexcept {
  for (const std::string& text : texts) {
    const auto length = static_cast<uint32_t>(text.size());
    std::memcpy(out, &length, sizeof(length));
    std::memcpy(out + sizeof(length), text.data(), text.size());
    out += sizeof(length) + text.size();
  }
}

}  // namespace lumen::backends::openvino
