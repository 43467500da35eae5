// Reads .npy: magic, version, the length of a header that is a Python dictionary, then the bytes.
// Source: numpy/lib/format.py. The header is always written by NumPy itself in one fixed form, so
// it is matched by its three keys, not parsed as Python.
#include <lumen/client/npy_file.h>

#include <lumen/base/text_file.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace lumen::client {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct TypeName {
  std::string_view descriptor;  // without its byte order
  ElementType type;
  std::string_view numpy;
};
constexpr std::array<TypeName, 12> kTypes = {{{"b1", ElementType::kBool, "bool"},
                                              {"u1", ElementType::kUint8, "uint8"},
                                              {"u2", ElementType::kUint16, "uint16"},
                                              {"u4", ElementType::kUint32, "uint32"},
                                              {"u8", ElementType::kUint64, "uint64"},
                                              {"i1", ElementType::kInt8, "int8"},
                                              {"i2", ElementType::kInt16, "int16"},
                                              {"i4", ElementType::kInt32, "int32"},
                                              {"i8", ElementType::kInt64, "int64"},
                                              {"f2", ElementType::kFp16, "float16"},
                                              {"f4", ElementType::kFp32, "float32"},
                                              {"f8", ElementType::kFp64, "float64"}}};

Status refuse(std::string_view name, const std::string& why) {
  return Status::error(Code::kInvalidArgument, "%.*s: %s", static_cast<int>(name.size()),
                       name.data(), why.c_str());
}

// The text after "'key':" in the dictionary, blanks skipped; empty if the key is not there.
std::string_view value_of(std::string_view dictionary, std::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = quote + std::string(key) + quote;
    const size_t at = dictionary.find(quoted);
    if (at == std::string_view::npos) continue;
    std::string_view rest = dictionary.substr(at + quoted.size());
    const size_t begin = rest.find_first_not_of(" :");
    return begin == std::string_view::npos ? std::string_view{} : rest.substr(begin);
  }
  return {};
}

Result<ElementType> parse_descriptor(std::string_view value, std::string_view name) {
  if (value.empty() || (value.front() != '\'' && value.front() != '"')) {
    return refuse(name, "a structured array; wanted one plain type");
  }
  const size_t end = value.find(value.front(), 1);
  const std::string_view text = value.substr(1, end == std::string_view::npos ? end : end - 1);
  const char order = text.empty() ? '?' : text.front();
  for (const TypeName& row : kTypes) {
    if (text.size() < 2 || text.substr(1) != row.descriptor) continue;
    if (order == '>' && element_size(row.type) > 1) {
      return refuse(name,
                    "big-endian; save it as arr.astype('<" + std::string(row.descriptor) + "')");
    }
    return row.type;
  }
  return refuse(name, "type '" + std::string(text) +
                          "'; wanted bool, an integer of 8 to 64 bits or a float of 16 to 64");
}

Result<Shape> parse_shape(std::string_view value, std::string_view name) {
  Shape shape;
  const size_t end = value.find(')');
  if (!value.starts_with('(') || end == std::string_view::npos) {
    return refuse(name, "its header has no shape");
  }
  const char* at = value.data() + 1;
  const char* const last = value.data() + end;
  while (at != last) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    int64_t dimension = 0;
    const auto [rest, error] = std::from_chars(at, last, dimension);
    if (error != std::errc{} || dimension < 0) return refuse(name, "its shape can't be read");
    if (!shape.append(dimension)) {
      return refuse(name, "over " + std::to_string(limits::kMaxRank) + " dimensions");
    }
    at = rest;
  }
  return shape;
}

size_t little_endian(std::string_view bytes) noexcept {
  size_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// The dictionary and where the data begins; nullopt: cut short or no .npy.
struct Parts {
  std::string_view dictionary;
  std::string_view data;
};
std::optional<Parts> split(std::string_view content) noexcept {
  if (content.size() < 10 || !content.starts_with(kMagic)) return std::nullopt;
  const auto major = static_cast<unsigned char>(content[6]);
  if (major < 1 || major > 3) return std::nullopt;
  const size_t length_bytes = major == 1 ? 2 : 4;
  if (content.size() < 8 + length_bytes) return std::nullopt;
  const size_t length = little_endian(content.substr(8, length_bytes));
  const std::string_view rest = content.substr(8 + length_bytes);
  if (rest.size() < length) return std::nullopt;
  return Parts{rest.substr(0, length), rest.substr(length)};
}

}  // namespace

std::string_view numpy_name(ElementType type) noexcept {
  const auto* const row = std::ranges::find(kTypes, type, &TypeName::type);
  return row == kTypes.end() ? std::string_view{} : row->numpy;
}

Result<NpyFile> parse_npy(std::string_view content, std::string_view name) {
  const auto parts = split(content);
  if (!parts) return refuse(name, "not a .npy file, or cut short; save it with numpy.save()");
  auto type = parse_descriptor(value_of(parts->dictionary, "descr"), name);
  if (!type.ok()) return type.status();
  auto shape = parse_shape(value_of(parts->dictionary, "shape"), name);
  if (!shape.ok()) return shape.status();
  const bool fortran = value_of(parts->dictionary, "fortran_order").starts_with("True");
  if (fortran && shape->rank() > 1) {
    return refuse(name, "in Fortran order; save numpy.ascontiguousarray(arr)");
  }
  const auto count = shape->element_count();
  size_t wanted = 0;
  if (!count || __builtin_mul_overflow(*count, element_size(*type), &wanted)) {
    return refuse(name, "its shape is too large");
  }
  if (parts->data.size() != wanted) {
    return refuse(name, "holds " + std::to_string(parts->data.size()) +
                            " bytes of data where its shape wants " + std::to_string(wanted));
  }
  return NpyFile{*type, *shape, std::string(parts->data)};
}

Result<NpyFile> read_npy(const std::filesystem::path& file) {
  const Result<std::string> content = read_file(file);
  if (!content.ok()) return content.status();
  return parse_npy(*content, file.native());
}

}  // namespace lumen::client
