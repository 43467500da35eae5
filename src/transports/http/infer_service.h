// The infer call between codec and engine: binds a parsed head to the model's tensors, decides
// where the body's bytes go, and encodes the reply.
// Threads: prepare_* and finish_body on the I/O thread, encode_reply on the worker that ran the
// request. Memory: the request's arena only. Errors: Status naming the tensor, got and wanted.
#pragma once

#include "transports/http/request_context.h"

#include <lumen/base/result.h>
#include <lumen/engine/model_repository.h>

#include <cstddef>

namespace lumen::http {

// After context.infer_head: checks it against the model, places each binary tensor in the arena and
// lists the places in call.to_receive. `binary_bytes`: what the body holds behind the JSON.
[[nodiscard]] Status prepare_infer(RequestContext& context, engine::Model& model,
                                   size_t binary_bytes) noexcept;

// The raw form (Inference-Header-Content-Length: 0): the whole body is the only input, batch 1 or
// as many rows as the size says; all outputs leave as binary.
[[nodiscard]] Status prepare_raw_infer(RequestContext& context, engine::Model& model,
                                       size_t body_bytes) noexcept;

// After the model: context.encoded, or context.encode_status when it cannot be said.
void encode_reply(RequestContext& context) noexcept;

}  // namespace lumen::http
