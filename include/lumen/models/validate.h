// Checks of a request's tensors against a model's metadata, made on the I/O thread before the
// engine sees the request; backends rely on them.
// Threads: any. Memory: none. Errors: Status naming the tensor, the value got and the value wanted.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/infer_request.h>
#include <lumen/models/metadata.h>
#include <lumen/tensor/tensor_view.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace lumen::models {

// kInvalidArgument "model 'm' has no input 'x'; wanted one of: ..." with the valid names, cut.
// `kind` is "input" or "output".
[[nodiscard]] Status unknown_tensor(const ModelMetadata& model, std::string_view kind,
                                    std::span<const TensorSpec> specs,
                                    std::string_view name) noexcept;

// Datatype, rank and dimensions agree with `spec`, every dimension is at least 1 (or 0, with
// `may_be_empty`), and (but for BYTES, with elements of no fixed size) byte_size is exactly the
// product. Does not look at the data.
[[nodiscard]] Status check_input(const ModelMetadata& model, const TensorSpec& spec,
                                 const TensorView& input, bool may_be_empty = false) noexcept;

// Sizes that the model ties together are equal. `inputs`: one for each input of the model, checked.
[[nodiscard]] Status check_ties(const ModelMetadata& model,
                                std::span<const TensorView> inputs) noexcept;

// A backend's answer if the model's operations refuse inputs whose types and ranks are right: names
// the inputs with free axes, and their shapes. `with_values`: their numbers had a part in it.
[[nodiscard]] Status shapes_refused(const ModelMetadata& model, std::span<const TensorView> inputs,
                                    bool with_values) noexcept;

// The status of a request whose client was gone before the model began with it.
[[nodiscard]] Status cancelled_before_run(const ModelMetadata& model) noexcept;

// All inputs of a bound request at once, with their data: the conditions of a backend's start().
// For callers without a codec in front of them (bus, tests).
[[nodiscard]] Status check_request(const ModelMetadata& model,
                                   const InferRequest& request) noexcept;

}  // namespace lumen::models
