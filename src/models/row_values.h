// RowValue: the facts about one tensor of a graph in the proof that rows are independent.
// Threads: any. Memory: the heap. Errors: none.
#pragma once

#include <lumen/onnx/graph.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lumen::models {

// A size, or a number that is made of sizes, while the number of rows is free.
struct RowSize {
  enum class Kind : uint8_t {
    kNumber,   // `number`
    kOther,    // follows from the other free axes, which are the same for all requests in a pack
    kRows,     // `number` times the number of rows; 0: a factor that is not known
    kUnknown,  // depends on the number of rows in another way
  };
  Kind kind = Kind::kOther;
  int64_t number = 0;

  [[nodiscard]] static RowSize of(int64_t number) { return {Kind::kNumber, number}; }
  [[nodiscard]] static RowSize rows(int64_t factor = 1) { return {Kind::kRows, factor}; }
  [[nodiscard]] static RowSize other() { return {Kind::kOther, 0}; }
  [[nodiscard]] static RowSize unknown() { return {Kind::kUnknown, 0}; }
  [[nodiscard]] bool is(int64_t wanted) const { return kind == Kind::kNumber && number == wanted; }
  [[nodiscard]] bool has_rows() const { return kind == Kind::kRows || kind == Kind::kUnknown; }
  bool operator==(const RowSize&) const = default;
};
using RowShape = std::vector<RowSize>;

[[nodiscard]] RowSize times(RowSize a, RowSize b);
// Of all but those of which the places are in [from, to).
[[nodiscard]] RowSize product(const RowShape& shape, size_t from, size_t to);
// kUnknown where `b` is no divisor for sure.
[[nodiscard]] RowSize divided(RowSize a, RowSize b);

struct RowValue {
  enum class Kind : uint8_t {
    kFixed,  // the same for any rows
    // Axis `axis` has the rows, or as many consecutive places of each: [row 0, row 0, row 1, row
    // 1]. The numbers in the places of a row follow from that row alone.
    kRows,
    kSizes,  // whole numbers made of sizes, of which some depend on the number of rows: `numbers`
  };
  Kind kind = Kind::kFixed;
  size_t axis = 0;
  std::optional<RowShape> shape;    // nullopt: not known, not even the rank
  std::optional<RowShape> numbers;  // of whole numbers that are known, in the order of memory

  [[nodiscard]] bool is_fixed() const { return kind == Kind::kFixed; }
  [[nodiscard]] bool has_rows() const { return kind == Kind::kRows; }
  [[nodiscard]] size_t rank() const { return shape ? shape->size() : 0; }
  // Those of a constant; nullopt: not known, or not the same for any rows.
  [[nodiscard]] std::optional<std::vector<int64_t>> constants() const;
};

// Of a node: the values of its inputs (nullptr: left out), and those of its outputs to be filled
// in.
struct RowNode {
  const onnx::Node& node;
  int64_t opset;
  std::vector<const RowValue*> inputs;
  std::vector<RowValue> outputs;

  [[nodiscard]] const RowValue* input(size_t i) const {
    return i < inputs.size() ? inputs[i] : nullptr;
  }
};

// Fills in the outputs of a node with at least one input that is not fixed. Returns why it can't
// say that rows are independent; empty: they are.
using RowRule = std::string (*)(RowNode& node);
// nullptr: no operator that is known to work row by row.
[[nodiscard]] RowRule find_row_rule(std::string_view domain, std::string_view type);
// Shapes and whole numbers of a node with fixed inputs alone, as far as other rules need them.
void fill_in_fixed(RowNode& node);
// Of whole numbers that are made of sizes: Shape, Gather, Concat, Mul and so on; false: not of
// these.
[[nodiscard]] bool compute_sizes(RowNode& node);

}  // namespace lumen::models
