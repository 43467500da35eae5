// A heap of the best elements seen so far, the worst of them on top. See the header.
#include <lumen/service/classification.h>

#include <lumen/base/check.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

namespace lumen::service {
namespace {

// "%f" of the largest double, 309 digits before the point, the point and six; the colons and the
// index.
constexpr size_t kMostTextBytes = 352;

struct Chosen {
  double value;     // for the order
  uint64_t number;  // of an integer that a double can't hold: its own bits, for the order and text
  uint32_t index;
};

template <typename T>
T element(const TensorView& tensor, size_t at) noexcept {
  T value;
  std::memcpy(&value, tensor.data + at * sizeof(T), sizeof(T));  // it may lie at any address
  return value;
}

float half(uint16_t bits) noexcept {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = std::ldexp(static_cast<float>(fraction), -24);
  return sign != 0 ? -small : small;
}

Chosen read(const TensorView& tensor, size_t at, uint32_t index) noexcept {
  const auto integer = [&](auto value) {
    return Chosen{static_cast<double>(value), static_cast<uint64_t>(value), index};
  };
  const auto real = [&](double value) { return Chosen{value, 0, index}; };
  switch (tensor.type) {
    case ElementType::kUint8: return integer(element<uint8_t>(tensor, at));
    case ElementType::kUint16: return integer(element<uint16_t>(tensor, at));
    case ElementType::kUint32: return integer(element<uint32_t>(tensor, at));
    case ElementType::kUint64: return integer(element<uint64_t>(tensor, at));
    case ElementType::kInt8: return integer(element<int8_t>(tensor, at));
    case ElementType::kInt16: return integer(element<int16_t>(tensor, at));
    case ElementType::kInt32: return integer(element<int32_t>(tensor, at));
    case ElementType::kInt64: return integer(element<int64_t>(tensor, at));
    case ElementType::kFp16: return real(half(element<uint16_t>(tensor, at)));
    case ElementType::kBf16:
      return real(std::bit_cast<float>(uint32_t{element<uint16_t>(tensor, at)} << 16));
    case ElementType::kFp32: return real(element<float>(tensor, at));
    case ElementType::kFp64: return real(element<double>(tensor, at));
    case ElementType::kBool:
    case ElementType::kBytes: break;  // refused before
  }
  return {};
}

bool is_integer(ElementType type) noexcept {
  return type != ElementType::kFp16 && type != ElementType::kBf16 && type != ElementType::kFp32 &&
         type != ElementType::kFp64;
}

// Whether `a` comes before `b`.
struct Better {
  ElementType type;
  bool operator()(const Chosen& a, const Chosen& b) const noexcept {
    if (type == ElementType::kUint64 && a.number != b.number) return a.number > b.number;
    if (type == ElementType::kInt64 && a.number != b.number) {
      return static_cast<int64_t>(a.number) > static_cast<int64_t>(b.number);
    }
    if (std::isnan(a.value) != std::isnan(b.value)) return std::isnan(b.value);
    if (a.value != b.value && !std::isnan(a.value)) return a.value > b.value;
    return a.index < b.index;
  }
};

// Returns how many bytes it took; `out` has room for kMostTextBytes and the label.
size_t write(std::byte* out, const Chosen& one, ElementType type, std::string_view label) noexcept {
  char text[kMostTextBytes];
  char* const end = text + sizeof(text);
  char* at = text;
  if (type == ElementType::kUint64) {
    at = std::to_chars(at, end, one.number).ptr;
  } else if (is_integer(type)) {
    at = std::to_chars(at, end, static_cast<int64_t>(one.number)).ptr;
  } else {
    at = std::to_chars(at, end, one.value, std::chars_format::fixed, 6).ptr;
  }
  LUMEN_CHECK(at < end);
  *at++ = ':';
  at = std::to_chars(at, end, one.index).ptr;
  const auto size = static_cast<size_t>(at - text);
  const bool has_label = !label.empty();
  const auto length = static_cast<uint32_t>(size + (has_label ? 1 + label.size() : 0));
  std::memcpy(out, &length, sizeof(length));
  out += sizeof(length);
  std::memcpy(out, text, size);
  if (has_label) {
    out[size] = std::byte{':'};
    std::memcpy(out + size + 1, label.data(), label.size());
  }
  return sizeof(length) + length;
}

}  // namespace

Result<TensorView> best_classes(std::string_view name, const TensorView& output, bool has_rows,
                                uint32_t most, std::span<const std::string> labels,
                                Allocator& memory) noexcept {
  const auto width = static_cast<int>(std::min<size_t>(name.size(), 128));
  if (output.type == ElementType::kBytes || output.type == ElementType::kBool) {
    return Status::error(Code::kInvalidArgument,
                         "output '%.*s': 'classification' wants numbers; ask for the tensor itself",
                         width, name.data());
  }
  const bool by_rows = has_rows && output.shape.rank() > 0;
  const size_t rows = by_rows ? static_cast<size_t>(output.shape[0]) : 1;
  size_t row_elements = 1;  // its shape's product is known to fit
  for (const int64_t size : output.shape.dimensions().subspan(by_rows ? 1 : 0)) {
    row_elements *= static_cast<size_t>(size);
  }
  const size_t classes = std::min<size_t>(most, row_elements);
  size_t longest_label = 0;
  for (const std::string& label : labels) longest_label = std::max(longest_label, label.size());
  const size_t entry_bytes = sizeof(uint32_t) + kMostTextBytes + 1 + longest_label;
  size_t bytes = 0;
  const bool fits = !__builtin_mul_overflow(rows * classes, entry_bytes, &bytes);
  const std::span<Chosen> best =
      fits ? memory.allocate_array<Chosen>(std::max<size_t>(classes, 1)) : std::span<Chosen>();
  auto* const out = best.empty()
                        ? nullptr
                        : static_cast<std::byte*>(memory.allocate(std::max<size_t>(bytes, 1), 1));
  if (out == nullptr || row_elements > UINT32_MAX) {
    return Status::error(Code::kTooLarge,
                         "output '%.*s': the texts of %zu classes of %zu rows do not fit a "
                         "request's memory; ask for fewer",
                         width, name.data(), classes, rows);
  }
  const Better better{output.type};
  TensorView texts{.type = ElementType::kBytes, .shape = {}, .data = out, .byte_size = 0};
  if (by_rows) (void)texts.shape.append(static_cast<int64_t>(rows));
  (void)texts.shape.append(static_cast<int64_t>(classes));
  for (size_t row = 0; row < rows && classes > 0; ++row) {
    size_t kept = 0;
    for (size_t i = 0; i < row_elements; ++i) {
      const Chosen one = read(output, row * row_elements + i, static_cast<uint32_t>(i));
      if (kept < classes) {
        best[kept++] = one;
        std::push_heap(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(kept), better);
      } else if (better(one, best[0])) {
        std::pop_heap(best.begin(), best.end(), better);
        best[classes - 1] = one;
        std::push_heap(best.begin(), best.end(), better);
      }
    }
    std::sort_heap(best.begin(), best.end(), better);
    for (const Chosen& one : best) {
      const std::string_view label =
          one.index < labels.size() ? std::string_view(labels[one.index]) : std::string_view();
      texts.byte_size += write(out + texts.byte_size, one, output.type, label);
    }
  }
  return texts;
}

}  // namespace lumen::service
