// Values of a configuration in Triton's form, as protobuf's JSON writes them.
// Threads: any. Memory: the result. Errors: nullopt where the value is none.
#pragma once

#include <lumen/tensor/element_type.h>
#include <lumen/tensor/shape.h>

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>

namespace lumen::models {

// 64-bit integers may be strings there.
[[nodiscard]] std::optional<int64_t> integer_within(const nlohmann::json& value, int64_t least,
                                                    int64_t most);
// "TYPE_FP32"
[[nodiscard]] std::optional<ElementType> triton_type(const nlohmann::json& value);
// "dims"; protobuf leaves an empty list out.
[[nodiscard]] std::optional<Shape> triton_dims(const nlohmann::json& value);

}  // namespace lumen::models
