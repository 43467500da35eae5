// Tensors from JSON: the shape says how many numbers are wanted before the first is read, so memory
// is taken once, and never more than the text could fill.
// Threads: one. Memory: the cursor's Allocator. Errors: false, the reason in the cursor.
#include "wire/json_tensor.h"

#include <lumen/wire/oip.h>

#include "wire/json_number_run.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace lumen::wire {

bool is_underflow(const char* at, const char* end) noexcept {
  // Where the first digit that is not 0 stands, as a power of ten, plus the exponent.
  int64_t place = 0;
  int64_t exponent = 0;
  bool seen_point = false;
  bool seen_digit = false;
  for (; at < end && *at != 'e' && *at != 'E'; ++at) {
    if (*at == '.') {
      seen_point = true;
    } else if (is_number_digit(*at)) {
      seen_digit |= *at != '0';
      if (seen_digit && !seen_point) ++place;
      if (!seen_digit && seen_point) --place;
    }
  }
  if (at < end) {
    ++at;
    const bool negative = *at == '-';
    if (*at == '-' || *at == '+') ++at;
    for (; at < end; ++at) exponent = std::min<int64_t>(exponent * 10 + (*at - '0'), 1LL << 40);
    if (negative) exponent = -exponent;
  }
  return !seen_digit || place + exponent < 0;
}

namespace {

// How many are read; the cursor is behind the last.
template <typename T>
size_t read_run(JsonCursor& cursor, T* out, size_t count) noexcept {
  const char* at = cursor.at();
  const size_t read = read_number_run(at, cursor.end(), out, count);
  cursor.jump_to(at);
  return read;
}
static_assert(kFloatReadAhead <= JsonParser::kPadding);

class DataReader {
 public:
  DataReader(JsonCursor& cursor, TensorView& tensor) noexcept : cursor_(cursor), tensor_(tensor) {}

  [[nodiscard]] bool read() noexcept;

 private:
  bool reserve(size_t bytes) noexcept;
  bool read_strings() noexcept;
  bool read_bools() noexcept;
  template <typename Element, typename Run>
  bool read_all(Element element, Run run) noexcept;
  template <typename T>
  bool read_numbers() noexcept;
  template <typename Element, typename Run>
  bool read_levels(size_t axis, Element element, Run run) noexcept;
  template <typename Element, typename Run>
  bool read_row(size_t count, Element element, Run run) noexcept;
  bool refuse_count(size_t got, bool more) noexcept;
  bool refuse_element(NumberError error) noexcept;

  JsonCursor& cursor_;
  TensorView& tensor_;
  size_t count_ = 0;
  size_t next_ = 0;  // index of the next element
};

bool DataReader::refuse_count(size_t got, bool more) noexcept {
  return cursor_.refuse(
      "'data' has %s%zu elements, but %s needs %zu; send as many as the shape says, flat or nested "
      "like it",
      more ? "more than " : "", got, describe(tensor_).text, count_);
}

bool DataReader::refuse_element(NumberError error) noexcept {
  const std::string_view type = element_type_name(tensor_.type);
  const bool is_float = tensor_.type == ElementType::kFp32 || tensor_.type == ElementType::kFp64;
  const char* reason = is_float
                           ? "is not a number as JSON writes it, NaN, Infinity, -Infinity or null"
                           : "is not a number as JSON writes it";
  if (error == NumberError::kNotAnInteger) reason = "is not an integer (no point, no exponent)";
  if (error == NumberError::kOutOfRange) reason = "is out of the range of the datatype";
  return cursor_.refuse("element %zu of 'data' %s; wanted %.*s", next_, reason,
                        static_cast<int>(type.size()), type.data());
}

bool DataReader::reserve(size_t bytes) noexcept {
  tensor_.data = static_cast<std::byte*>(cursor_.memory().allocate(bytes, 64));
  tensor_.byte_size = bytes;
  if (tensor_.data != nullptr) return true;
  return cursor_.refuse_as(Code::kTooLarge, "its %zu bytes do not fit into the request's memory",
                           bytes);
}

// `count` elements and the closing bracket; the opening one is read already. `element()` reads one,
// `run(n)` up to n more with their commas, as many as are easy.
template <typename Element, typename Run>
bool DataReader::read_row(size_t count, Element element, Run run) noexcept {
  for (size_t i = 0; i < count;) {
    if (i > 0 && !cursor_.take(',')) {
      if (cursor_.peek() == ']') return refuse_count(next_, false);
      return cursor_.refuse_here("',' or ']'");
    }
    if (cursor_.peek() == ']' && i == 0) return refuse_count(next_, false);
    if (!element()) return false;
    ++next_;
    const size_t more = run(count - i - 1);
    next_ += more;
    i += 1 + more;
  }
  if (cursor_.take(']')) return true;
  if (count == 0 || cursor_.peek() == ',') return refuse_count(next_, true);
  return cursor_.refuse_here("',' or ']'");
}

// Nested: each axis is an array of exactly as many as its dimension says. Depth: kMaxRank at most.
template <typename Element, typename Run>
bool DataReader::read_levels(size_t axis, Element element, Run run) noexcept {
  if (!cursor_.take('[')) return cursor_.refuse_here("'[', nested as the shape says");
  const size_t count = static_cast<size_t>(tensor_.shape[axis]);
  if (axis + 1 == tensor_.shape.rank()) return read_row(count, element, run);
  for (size_t i = 0; i < count; ++i) {
    if (i > 0 && !cursor_.take(',')) {
      if (cursor_.peek() == ']') return refuse_count(next_, false);
      return cursor_.refuse_here("',' or ']'");
    }
    if (cursor_.peek() == ']') return refuse_count(next_, false);
    if (!read_levels(axis + 1, element, run)) return false;
  }
  if (cursor_.take(']')) return true;
  if (count == 0 || cursor_.peek() == ',') return refuse_count(next_, true);
  return cursor_.refuse_here("',' or ']'");
}

// Flat unless its first element is an array and the shape has an axis for that. A scalar, which has
// no axis at all, may also come without brackets, as numpy's tolist() writes it.
template <typename Element, typename Run>
bool DataReader::read_all(Element element, Run run) noexcept {
  const char* const start = cursor_.at();
  if (!cursor_.take('[')) {
    if (tensor_.shape.rank() == 0) return element();
    return cursor_.refuse_value("'data'", "an array, flat or nested as the shape says");
  }
  if (cursor_.peek() != '[' || tensor_.shape.rank() < 2) return read_row(count_, element, run);
  cursor_.jump_to(start);
  return read_levels(0, element, run);
}

template <typename T>
bool DataReader::read_numbers() noexcept {
  if (!reserve(count_ * sizeof(T))) return false;
  T* const out = reinterpret_cast<T*>(tensor_.data);
  const auto element = [this, out] {
    const Number<T> number = read_number<T>(cursor_.at(), cursor_.end());
    if constexpr (std::is_floating_point_v<T>) {
      if (number.error == NumberError::kNotANumber) {
        if (const std::optional<double> special = cursor_.try_non_finite()) {
          out[next_] = static_cast<T>(*special);
          return true;
        }
      }
    }
    if (number.error != NumberError::kNone) return refuse_element(number.error);
    out[next_] = number.value;
    cursor_.jump_to(number.end);
    return true;
  };
  return read_all(element,
                  [this, out](size_t count) { return read_run(cursor_, out + next_, count); });
}

bool DataReader::read_bools() noexcept {
  if (!reserve(count_)) return false;
  const auto element = [this] {
    const std::optional<bool> value = cursor_.read_bool("true or false, as a BOOL is written");
    if (!value) return false;
    tensor_.data[next_] = std::byte{*value};
    return true;
  };
  return read_all(element, [](size_t) { return size_t{0}; });
}

// Each element is a u32 length and its bytes. Unescaping never makes a string longer, so the text
// itself bounds the memory; it is read twice to know that bound.
bool DataReader::read_strings() noexcept {
  const char* const start = cursor_.at();
  if (!cursor_.skip_value()) return false;
  const size_t text_bytes = static_cast<size_t>(cursor_.at() - start);
  cursor_.jump_to(start);
  if (!reserve(count_ * sizeof(uint32_t) + text_bytes)) return false;
  size_t used = 0;
  const auto element = [this, &used] {
    const std::optional<JsonCursor::RawString> raw = cursor_.scan_string("a string in 'data'");
    if (!raw) return false;
    char* const out = reinterpret_cast<char*>(tensor_.data + used);
    const std::optional<size_t> size = cursor_.unescape(*raw, out + sizeof(uint32_t));
    if (!size) return false;
    const uint32_t length = static_cast<uint32_t>(*size);  // the whole JSON is below 4 GiB
    std::memcpy(out, &length, sizeof(length));
    used += sizeof(length) + *size;
    return true;
  };
  const bool read = read_all(element, [](size_t) { return size_t{0}; });
  tensor_.byte_size = used;
  return read;
}

bool DataReader::read() noexcept {
  // The caller has checked the product. Each element takes two bytes of text at least, its comma
  // or bracket and a digit: a huge shape is refused before any memory is taken for it.
  count_ = tensor_.shape.element_count().value_or(SIZE_MAX);
  if (count_ > cursor_.bytes_left() / 2) {
    return cursor_.refuse("'data' is too short for %s, which needs %zu elements",
                          describe(tensor_).text, count_);
  }
  switch (tensor_.type) {
    case ElementType::kBool: return read_bools();
    case ElementType::kUint8: return read_numbers<uint8_t>();
    case ElementType::kUint16: return read_numbers<uint16_t>();
    case ElementType::kUint32: return read_numbers<uint32_t>();
    case ElementType::kUint64: return read_numbers<uint64_t>();
    case ElementType::kInt8: return read_numbers<int8_t>();
    case ElementType::kInt16: return read_numbers<int16_t>();
    case ElementType::kInt32: return read_numbers<int32_t>();
    case ElementType::kInt64: return read_numbers<int64_t>();
    case ElementType::kFp32: return read_numbers<float>();
    case ElementType::kFp64: return read_numbers<double>();
    case ElementType::kBytes: return read_strings();
    case ElementType::kFp16:
    case ElementType::kBf16: break;
  }
  const std::string_view type = element_type_name(tensor_.type);
  return cursor_.refuse(
      "%.*s has no form in JSON; send it as binary, with 'parameters': {'binary_data_size': N}",
      static_cast<int>(type.size()), type.data());
}

}  // namespace

bool read_json_tensor(JsonCursor& cursor, TensorView& tensor) noexcept {
  return DataReader(cursor, tensor).read();
}

}  // namespace lumen::wire
