// grpc_call: a call of gRPC on a connection of its own, waited for: the metadata of a model.
// Threads: any. Memory: the heap; control plane. Errors: Status with the URL, the method and why.
#pragma once

#include <lumen/client/model_info.h>
#include <lumen/client/target.h>

#include <lumen/base/result.h>

#include <string>
#include <string_view>

namespace lumen::client {

// The metadata of a model, by ModelMetadata.
[[nodiscard]] Result<ModelInfo> read_model_info_by_grpc(const Target& target,
                                                        const std::string& name,
                                                        const std::string& version);
// The same from the reply's message.
[[nodiscard]] Result<ModelInfo> parse_grpc_metadata(std::string_view message);

}  // namespace lumen::client
