// Looks a model's operators up in a backend's OperatorTable.
// Threads: any. Memory: the heap. Errors: a type or an opset that the file does not tell counts as
// not known.
#pragma once

#include <lumen/models/operator_table.h>
#include <lumen/onnx/graph.h>

#include <string>
#include <vector>

namespace lumen::models {

// Each kind of node once, with the reason: "Mul of INT64".
struct OperatorFindings {
  // The table does not allow it. Empty: the backend is known to compute the model as ONNX defines
  // it.
  std::vector<std::string> not_known;
  // Nodes that the backend computes otherwise: those of the table's deviations.
  std::vector<std::string> deviating;
  // By it a request can end the process or read other memory: the backend is not given the model.
  std::vector<std::string> unsafe;
};

// Of a quantised version with recorded rows, whose answers are compared with those: the steps from
// float to 8 bits and back, and operators on 8 bits, need not be known.
enum class JudgedByRows : bool { kNo, kYes };

// Looks into subgraphs, too.
[[nodiscard]] OperatorFindings compare_operators(const OperatorTable& table,
                                                 const onnx::Model& model,
                                                 JudgedByRows judged = JudgedByRows::kNo);

}  // namespace lumen::models
