// Stages: the one list of a request's stages, for CSV, metrics, bench and docs alike.
// Threads: constants. Memory: none. Errors: never.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lumen::telemetry {

enum class Stage : uint8_t {
  kConnect,      // accepted until the first byte is read; a connection's first request only
  kParse,        // first byte read until the tensors are understood and admitted
  kQueue,        // admitted until a worker took it
  kPreprocess,   // decoded, inflated, bound or copied, packed into a batch
  kInference,    // the model ran
  kPostprocess,  // outputs split and placed, reply encoded
  kWrite,        // reply encoded until its last byte is with the kernel
  kTotal,        // first byte read until last byte written
};

inline constexpr std::array<std::string_view, 8> kStageNames = {
    "connect", "parse", "queue", "preprocess", "inference", "postprocess", "write", "total"};
inline constexpr size_t kStageCount = kStageNames.size();

}  // namespace lumen::telemetry
