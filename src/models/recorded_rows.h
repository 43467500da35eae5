// The rows that `lumen quantize` held out, with the f32 model's answers: quantization.json and
// quantization.rows beside a quantised version's model.onnx (docs/formats/quantization.md). A
// backend serves that version only if its own answers to these rows are near enough: kernels of
// INT8 may saturate on CPUs without VNNI, and some are wrong for one row.
// Threads: control plane. Memory: the heap, the rows as a whole. Errors: Status of files that are
// not of that form.
#pragma once

#include <lumen/base/result.h>
#include <lumen/memory/request_memory.h>
#include <lumen/models/backend.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lumen::models {

class RecordedRows {
 public:
  // nullptr: there is no quantization.json beside `model_file`.
  [[nodiscard]] static Result<std::shared_ptr<const RecordedRows>> read(
      const std::filesystem::path& model_file);

  // Of kServedPrecisions, one of the quantised.
  [[nodiscard]] uint32_t precision() const noexcept { return precision_; }
  // A sentence for people: the gain of the precision.
  [[nodiscard]] const std::string& why() const noexcept { return why_; }

  // Runs the rows one by one and, if `may_pack`, several in one call. The result says why the
  // answers are not good enough; empty: they are. `memory` is reset before each call.
  [[nodiscard]] std::string problem_of(const ModelMetadata& metadata, Instance& instance,
                                       RequestMemory& memory, bool may_pack) const;

 private:
  struct Tensor {
    std::string name;
    TensorView view;  // of bytes_
  };
  struct Call {
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
  };
  class Reader;
  class Trial;

  uint32_t precision_ = 0;
  std::string why_;
  double least_db_ = 0;  // signal to error
  std::vector<std::byte> bytes_;
  std::vector<Call> calls_;
};

}  // namespace lumen::models
