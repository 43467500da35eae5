// Cuts ZipMap out of an ONNX file. Converters of scikit-learn, LightGBM and XGBoost end a
// classifier with it: it turns the tensor of probabilities into a sequence of maps from label to
// probability, which the protocol can't carry. The tensor itself becomes the output, under the same
// name; the labels are told beside it.
// Threads: any. Memory: the heap; a copy of the file if something is cut.
// Errors: nullopt for a file without a ZipMap at its end, or that is no ONNX file.
// Format: onnx.proto3 of ONNX 1.x, in protobuf's wire format.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lumen::backends::onnxruntime {

struct CutModel {
  std::vector<std::byte> bytes;  // the file without its ZipMaps
  // Of each output that was one: its classes, in the order of the tensor's last axis.
  std::map<std::string, std::vector<std::string>> labels;
};

[[nodiscard]] std::optional<CutModel> cut_zip_maps(std::span<const std::byte> model);

}  // namespace lumen::backends::onnxruntime
