// OperatorTable: the operators that a backend is known to compute as ONNX defines them, with their
// types and attributes. A backend that is no reference names one in its traits; "auto" gives it a
// model only if each operator of the model is in there. That of a reference has no rules, but the
// operators that it is not given and those that it computes otherwise.
// Threads: constants. Memory: none, views of literals. Errors: none.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lumen::models {

// An operator may have several rows: one of them must allow a node as a whole.
struct OperatorRule {
  std::string_view domain;  // empty: ONNX's own
  std::string_view type;
  // The versions of the operator set with which it was compared, both included.
  int64_t first_opset;
  int64_t last_opset;
  std::string_view types;    // of its inputs, by a space: "FP32 INT32"
  std::string_view results;  // of its outputs; empty: as `types`
  // Names by a space; "name=a|b" allows those values only. "name=*" and "name" allow any.
  // "+name=a": the node must have it, since the default is computed otherwise.
  std::string_view attributes;
  // Bit i: input i is a parameter (axes, a shape). It must be a constant or made of shapes; INT64
  // is allowed there, since such numbers fit 32 bits.
  uint32_t parameters;
  // Bit i: the backend takes numbers beyond 32 bits in this parameter as the nearest limit, as ONNX
  // does.
  uint32_t clamped;
  uint32_t most_inputs;  // a node that connects more is not allowed
  uint32_t most_outputs;
};

// An operator that is known to be computed otherwise, or was left out, and why. With
// `unsafe_inputs` it is one by which a request can end the process or read other memory: the
// backend is not given it at all.
struct OperatorException {
  std::string_view domain;
  std::string_view type;
  std::string_view types;  // of the unsafe inputs; empty: any
  // Bit i: input i must not come from a request. 0: the operator is only not known to be equal.
  uint32_t unsafe_inputs;
  std::string_view reason;
  // A whole number that is as unsafe in a constant there; 0: none.
  int64_t unsafe_number = 0;
};

// A node that a reference computes otherwise than ONNX defines it. All that a row says must hold of
// the node.
struct OperatorDeviation {
  std::string_view domain;
  std::string_view type;
  std::string_view attributes;  // "name=value" by a space
  uint32_t inputs;              // bit i: input i is connected
  std::string_view types;       // of these inputs; empty: any
  uint32_t outputs;             // bit i: output i is connected
  // Of these inputs only numbers that are not whole deviate, so a constant of whole FP32 numbers is
  // computed rightly.
  bool of_fractions;
  std::string_view reason;
};

struct OperatorTable {
  std::string_view made_with;  // the backend's description() when the rules were made
  std::string_view version;    // another table has another one
  std::span<const OperatorRule> rules;
  std::span<const OperatorException> exceptions;
  std::span<const OperatorDeviation> deviations = {};
  // The newest version of ONNX's own operator set that the backend reads, or was compared with; 0:
  // not known.
  int64_t newest_opset = 0;
};

}  // namespace lumen::models
