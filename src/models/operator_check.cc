// See the header.
#include "models/operator_check.h"

#include <lumen/onnx/model_file.h>

namespace lumen::models {

OperatorFindings compare_operators(const Backend& backend, const ModelSource& source) {
  const OperatorTable* table = backend.traits().operators;
  if (table == nullptr || source.graph == nullptr) return {};
  const Result<onnx::Model>& model = source.graph->model();
  if (!model.ok() && table->rules.empty())
    return {};  // the backend says itself that the file is damaged
  if (!model.ok()) {
    return {.not_known = {std::string(model.status().message())}, .deviating = {}, .unsafe = {}};
  }
  const JudgedByRows judged = source.rows == nullptr ? JudgedByRows::kNo : JudgedByRows::kYes;
  OperatorFindings found = compare_operators(*table, *model, judged);
  if (table->rules.empty()) {
    return {.not_known = std::move(found.deviating),
            .deviating = {},
            .unsafe = std::move(found.unsafe)};
  }
  const std::string version = backend.description();
  if (table->made_with != version) {
    found.not_known.insert(found.not_known.begin(), "all operators, since they were compared in " +
                                                        std::string(table->made_with) +
                                                        ", and this is " + version);
  }
  return found;
}

std::string newer_opset(const Backend& backend, const ModelSource& source) {
  const OperatorTable* table = backend.traits().operators;
  if (table == nullptr || table->newest_opset == 0 || source.graph == nullptr) return {};
  const Result<onnx::Model>& model = source.graph->model();
  if (!model.ok()) return {};
  const auto opset = model->opsets.find("");
  if (opset == model->opsets.end() || opset->second <= table->newest_opset) return {};
  const std::string newest = std::to_string(table->newest_opset);
  return "the file has opset " + std::to_string(opset->second) + ", newer than " + newest +
         ", the newest that is known of " + backend.description() + "; export it with opset " +
         newest + " or lower";
}

std::string listed(const std::vector<std::string>& operators) {
  std::string text;
  for (const std::string& one : operators) text.append(text.empty() ? "" : ", ").append(one);
  return text;
}

std::string table_versions(const Backends& backends) {
  std::string text;
  for (const auto& entry : backends.entries()) {
    const OperatorTable* table = entry->backend->traits().operators;
    if (table != nullptr) text.append(table->version).append(" ");
  }
  return text;
}

}  // namespace lumen::models
