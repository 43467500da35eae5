// The outputs of a call as its reply has them: the tensor itself, its best classes, or nothing but
// its name where its bytes were copied into a region of shared memory.
// Threads: the thread that has run the model. Memory: `memory`. Errors: a Status that names the
// output; kTooLarge without memory.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/result.h>
#include <lumen/service/call.h>
#include <lumen/wire/oip.h>

#include <cstddef>
#include <span>

namespace lumen::service {

// `head`: of the request. `places`: from take_output_places(), by the number of the output.
[[nodiscard]] Result<std::span<const wire::ReplyOutput>> reply_outputs(
    const Call& call, const wire::InferHead& head, std::span<const std::span<std::byte>> places,
    Allocator& memory) noexcept;

}  // namespace lumen::service
