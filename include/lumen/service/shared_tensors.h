// Tensors in regions of shared memory that clients have registered: inputs are read and outputs
// written where they lie.
// Threads: the call's I/O thread. Memory: the call's scratch memory. Errors: there is no such
// region (kNotFound), it is another user's, or it has no such place; kTooLarge without memory.
#pragma once

#include <lumen/service/binder.h>
#include <lumen/service/intake.h>

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <span>

namespace lumen::service {

[[nodiscard]] inline bool uses_shared_memory(const wire::InferHead& head) noexcept {
  const auto is_shared = [](const auto& one) { return one.shared.is_there(); };
  return std::ranges::any_of(head.inputs, is_shared) ||
         std::ranges::any_of(head.outputs, is_shared);
}

// A tensor at an address that no load of its elements takes is copied. False: no memory.
[[nodiscard]] bool align(TensorView& tensor, Allocator& memory) noexcept;

// `user`: the client's; over TCP the server's own.
[[nodiscard]] Status bind_shared_input(Intake& intake, Call& call, Binder& binder,
                                       const wire::InferInput& input, uid_t user) noexcept;

// A place for each output that is wanted in a region, by its number; empty, where none is.
[[nodiscard]] Result<std::span<std::span<std::byte>>> take_output_places(
    Intake& intake, Call& call, std::span<const wire::InferOutput> outputs, uid_t user) noexcept;

}  // namespace lumen::service
