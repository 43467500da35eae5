// See the header.
#include "models/labels.h"

#include <algorithm>

namespace lumen::models {
namespace {

// -1: free, or the shape is not known.
int64_t classes_of(const TensorSpec& output) noexcept {
  const size_t rank = output.shape.rank();
  return rank == 0 ? Shape::kDynamic : output.shape[rank - 1];
}

}  // namespace

Status add_labels(const ModelSource& source, std::vector<TensorSpec>& outputs) {
  const auto lines = static_cast<int64_t>(source.label_lines.size());
  bool has_place = lines == 0;
  for (TensorSpec& output : outputs) {
    const int64_t classes = classes_of(output);
    const bool may_be_meant = classes == Shape::kDynamic && outputs.size() == 1;
    if (lines == 0 || (classes != lines && !may_be_meant)) continue;
    output.labels = source.label_lines;
    has_place = true;
  }
  if (!has_place) {
    return Status::error(Code::kUnavailable,
                         "labels.txt has %lld lines, but no output has a last axis of that size; "
                         "name the output under \"labels\" in config.json, or mend the file",
                         static_cast<long long>(lines));
  }
  for (const auto& [name, labels] : source.options.labels) {
    const auto output = std::ranges::find(outputs, name, &TensorSpec::name);
    if (output == outputs.end()) {
      return Status::error(Code::kUnavailable,
                           "config.json: key \"labels\": the model has no output '%.128s'",
                           name.c_str());
    }
    const int64_t classes = classes_of(*output);
    if (classes != Shape::kDynamic && classes != static_cast<int64_t>(labels.size())) {
      return Status::error(Code::kUnavailable,
                           "config.json: key \"labels\": output '%.128s' got %zu classes, wanted "
                           "%lld, the size of its last axis",
                           name.c_str(), labels.size(), static_cast<long long>(classes));
    }
    output->labels = labels;
  }
  return {};
}

}  // namespace lumen::models
