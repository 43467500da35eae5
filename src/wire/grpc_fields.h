// The field numbers of the infer call's messages (inference, grpc_service.proto).
// Threads: constants. Memory: none. Errors: none.
#pragma once

#include <cstdint>

namespace lumen::wire::field {

// ModelInferRequest.
inline constexpr uint32_t kModelName = 1, kModelVersion = 2, kId = 3, kParameters = 4, kInputs = 5,
                          kOutputs = 6, kRawInputs = 7;
// InferInputTensor and, for the first three, InferOutputTensor.
inline constexpr uint32_t kTensorName = 1, kTensorType = 2, kTensorShape = 3, kTensorParameters = 4,
                          kTensorContents = 5;
// InferRequestedOutputTensor.
inline constexpr uint32_t kOutputName = 1, kOutputParameters = 2;
// InferParameter, one of: bool, int64, string, double, uint64.
inline constexpr uint32_t kBool = 1, kInt64 = 2, kString = 3, kDouble = 4, kUint64 = 5;
// An entry of a map.
inline constexpr uint32_t kKey = 1, kValue = 2;
// InferTensorContents.
inline constexpr uint32_t kBoolContents = 1, kIntContents = 2, kInt64Contents = 3,
                          kUintContents = 4, kUint64Contents = 5, kFp32Contents = 6,
                          kFp64Contents = 7, kBytesContents = 8;
// ModelInferResponse.
inline constexpr uint32_t kReplyModel = 1, kReplyVersion = 2, kReplyId = 3, kReplyParameters = 4,
                          kReplyOutputs = 5, kReplyRaw = 6;
// ModelStreamInferResponse.
inline constexpr uint32_t kStreamError = 1, kStreamReply = 2;

}  // namespace lumen::wire::field
