// parse_npy: no overrun, as many bytes as type and shape want, a refusal that names the file, and
// an array that is the same when it is written as NumPy writes it and read again.
#include <lumen/client/npy_file.h>
#include "fuzz/fuzz_support.h"

#include <string>

using lumen::Result;
using lumen::client::NpyFile;
using lumen::fuzz::Copy;

namespace {

// The descriptor of the type with its byte order: the beginning of NumPy 1.0's files.
std::string written(const NpyFile& file, std::string_view descriptor) {
  std::string shape = "(";
  for (size_t axis = 0; axis < file.shape.rank(); ++axis) {
    shape += std::to_string(file.shape[axis]) + ", ";
  }
  const std::string header = "{'descr': '" + std::string(descriptor) +
                             "', 'fortran_order': False, 'shape': " + shape + "), }\n";
  std::string content("\x93NUMPY\x01\x00", 8);
  content += static_cast<char>(header.size() & 0xff);
  content += static_cast<char>(header.size() >> 8);
  return content + header + file.bytes;
}

std::string_view descriptor_of(std::string_view numpy_name) {
  struct Row {
    std::string_view name, descriptor;
  };
  static constexpr Row kRows[] = {
      {"bool", "|b1"},  {"uint8", "|u1"},   {"int8", "|i1"},    {"uint16", "<u2"},
      {"int16", "<i2"}, {"uint32", "<u4"},  {"int32", "<i4"},   {"uint64", "<u8"},
      {"int64", "<i8"}, {"float16", "<f2"}, {"float32", "<f4"}, {"float64", "<f8"},
  };
  for (const Row& row : kRows) {
    if (row.name == numpy_name) return row.descriptor;
  }
  return {};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Copy copy(std::string_view(reinterpret_cast<const char*>(data), size));
  const Result<NpyFile> read = lumen::client::parse_npy(copy.view(), "x.npy");
  if (!read.ok()) {
    LUMEN_CHECK(read.status().message().find("x.npy") != std::string_view::npos);
    return 0;
  }
  const auto count = read->shape.element_count();
  LUMEN_CHECK(count && read->bytes.size() == *count * lumen::element_size(read->type));
  const std::string_view descriptor = descriptor_of(lumen::client::numpy_name(read->type));
  LUMEN_CHECK(!descriptor.empty());
  const Result<NpyFile> again = lumen::client::parse_npy(written(*read, descriptor), "x.npy");
  LUMEN_CHECK(again.ok() && again->type == read->type && again->bytes == read->bytes);
  LUMEN_CHECK(again->shape.rank() == read->shape.rank());
  for (size_t axis = 0; axis < read->shape.rank(); ++axis) {
    LUMEN_CHECK(again->shape[axis] == read->shape[axis]);
  }
  return 0;
}
