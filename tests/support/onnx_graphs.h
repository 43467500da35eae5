// Parts of ONNX graphs, as the reader gives them, for tests that make graphs by hand.
// Threads: any. Memory: the heap. Errors: none.
#pragma once

#include <lumen/onnx/graph.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lumen::onnx::test {

// `sizes`: -1 is a free axis.
inline Value value(std::string name, int32_t type, const std::vector<int64_t>& sizes = {}) {
  Value made;
  made.name = std::move(name);
  made.type = type;
  made.has_shape = true;
  for (const int64_t size : sizes) made.shape.push_back({.size = size, .symbol = {}});
  return made;
}

inline Tensor integers(std::string name, std::vector<int64_t> numbers) {
  Tensor made;
  made.name = std::move(name);
  made.type = kInt64;
  made.dims = {static_cast<int64_t>(numbers.size())};
  made.int64_data = std::move(numbers);
  return made;
}

inline Node node(std::string type, std::vector<std::string> inputs, std::string output,
                 std::vector<Attribute> attributes = {}) {
  Node made;
  made.op_type = std::move(type);
  made.inputs = std::move(inputs);
  made.outputs = {std::move(output)};
  made.attributes = std::move(attributes);
  return made;
}

inline Attribute integer(std::string name, int64_t number) {
  Attribute made;
  made.name = std::move(name);
  made.kind = Attribute::Kind::kInt;
  made.i = number;
  return made;
}

inline Attribute integers_of(std::string name, std::vector<int64_t> numbers) {
  Attribute made;
  made.name = std::move(name);
  made.kind = Attribute::Kind::kInts;
  made.ints = std::move(numbers);
  return made;
}

}  // namespace lumen::onnx::test
