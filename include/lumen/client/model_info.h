// ModelInfo: a server's description of a model, and the request that a bench sends it. Threads:
// values. Memory: the heap; control plane. Errors: Status naming the server, the model and the
// inputs wanted.
#pragma once

#include <lumen/client/npy_file.h>
#include <lumen/client/sequence_walk.h>
#include <lumen/client/target.h>

#include <lumen/base/result.h>
#include <lumen/tensor/element_type.h>
#include <lumen/tensor/shape.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::client {

struct TensorInfo {
  std::string name;
  ElementType type = ElementType::kFp32;
  Shape shape;  // -1: free
};

struct ModelInfo {
  std::string name;
  std::string version;  // empty: the server chooses
  std::vector<TensorInfo> inputs;
};

// GET /v2/models/NAME[/versions/VERSION], or ModelMetadata.
[[nodiscard]] Result<ModelInfo> read_model_info(const Target& target, const std::string& name,
                                                const std::string& version);
// The same from the reply's body.
[[nodiscard]] Result<ModelInfo> parse_model_info(std::string_view json);

// An input as it will be sent: its shape has no free axis.
struct InputTensor {
  std::string name;
  ElementType type = ElementType::kFp32;
  Shape shape;
  std::string bytes;
};

// Free axes become 1; values are pseudo-random from `seed`: floats in [0, 1), integers 0 to 7, so
// that they are valid indices of nearly any table.
[[nodiscard]] InputTensor random_input(const TensorInfo& info, uint64_t seed);

// Type and shape of the file must be the model's.
[[nodiscard]] Result<InputTensor> input_of_file(const TensorInfo& info, NpyFile file,
                                                std::string_view name);

enum class ConnectionUse : uint8_t { kKept, kOneRequest };

// A whole HTTP request in the protocol's binary form. `id` may be empty. With `sequence` it names
// one, and the places say where.
[[nodiscard]] std::string build_request(const Target& target, const ModelInfo& model,
                                        const std::vector<InputTensor>& inputs, std::string_view id,
                                        ConnectionUse use, SequencePlaces* sequence = nullptr);
// A ModelInferRequest with its prefix; the bytes of the inputs are raw, the last of the message.
[[nodiscard]] std::string build_grpc_request(const ModelInfo& model,
                                             const std::vector<InputTensor>& inputs,
                                             SequencePlaces* sequence = nullptr);
// Where the bytes of input `index` begin in a request that either has made.
[[nodiscard]] size_t input_at(const Target& target, std::string_view request,
                              const std::vector<InputTensor>& inputs, size_t index);

}  // namespace lumen::client
