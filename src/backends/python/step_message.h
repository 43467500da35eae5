// Tensors as a message of the bus, and back. A table of kWordsOfATensor 64-bit words for each
// tensor (rank, sizes of the axes, bytes), then the bytes of each, from a multiple of 64.
// Threads: any. Memory: of a reply's tensors, in the request's. Errors: a Status; a reply is
// another process's, so each word of it is checked.
#pragma once

#include <lumen/base/limits.h>
#include <lumen/base/result.h>
#include <lumen/models/infer_request.h>
#include <lumen/models/metadata.h>
#include <lumen/tensor/tensor_view.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace lumen::backends::python {

inline constexpr size_t kWordsOfATensor = 2 + limits::kMaxRank;
inline constexpr size_t kMessageAlign = 64;

// Of a message with these tensors.
[[nodiscard]] size_t message_bytes(std::span<const TensorView> tensors) noexcept;

// `message` has message_bytes(tensors).
void write_message(std::span<const TensorView> tensors, std::span<std::byte> message) noexcept;

// Copies the outputs that `request` wants out of a reply, which has all of `metadata`'s.
[[nodiscard]] Status read_reply(std::span<const std::byte> message,
                                const models::ModelMetadata& metadata,
                                models::InferRequest& request) noexcept;

}  // namespace lumen::backends::python
