// The infer call of inference.GRPCInferenceService: protobuf messages to the same InferHead that
// JSON becomes, and back. Pure: no socket, no thread, no clock.
// Threads: any. Memory: the Allocator given. Errors: Status naming the tensor, the value got, the
// value wanted and the fix.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/result.h>
#include <lumen/wire/oip.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace lumen::wire {

struct GrpcInferRequest {
  std::string_view model;
  std::string_view version;
  // Each input has its data, but for those in shared memory: those of raw_input_contents lie in
  // `message`, at any address; those of typed contents in `memory`.
  InferHead head;
};

// `message`: a ModelInferRequest. Fields that are not known are passed over.
[[nodiscard]] Result<GrpcInferRequest> parse_grpc_infer(std::string_view message,
                                                        Allocator& memory) noexcept;

// Where the largest raw_input_contents begins in a ModelInferRequest, of those whose length stands
// in `begin`, the message's first bytes. 0: none does.
[[nodiscard]] size_t grpc_tensor_offset(std::string_view begin) noexcept;

// A call's name of a model, as ModelReadyRequest and its like have it.
struct GrpcModelName {
  std::string_view name;
  std::string_view version;
};
[[nodiscard]] Result<GrpcModelName> parse_grpc_model_name(std::string_view message) noexcept;

// In front of each message on a stream: whether it is compressed, and its length, big-endian.
inline constexpr size_t kGrpcPrefixBytes = 5;
void write_grpc_prefix(char* out, size_t message_bytes) noexcept;

// A message with its prefix, in pieces: in `memory`, and the outputs themselves.
struct GrpcMessage {
  std::span<const std::string_view> pieces;
  size_t bytes = 0;  // of all
};

// A ModelInferResponse with all outputs in raw_output_contents, those that lie elsewhere as empty
// ones. Errors: kTooLarge, where `memory` has no room.
[[nodiscard]] Result<GrpcMessage> encode_grpc_reply(const InferReply& reply,
                                                    Allocator& memory) noexcept;

// The same in a ModelStreamInferResponse. `says_final`: with the parameter triton_final_response.
[[nodiscard]] Result<GrpcMessage> encode_grpc_stream_reply(const InferReply& reply, bool says_final,
                                                           Allocator& memory) noexcept;
// A ModelStreamInferResponse for a request that failed; `id`: of the request.
[[nodiscard]] Result<GrpcMessage> encode_grpc_stream_error(std::string_view error,
                                                           std::optional<std::string_view> id,
                                                           Allocator& memory) noexcept;

}  // namespace lumen::wire
