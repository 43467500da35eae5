// The rows of `lumen matrix` as Markdown, CSV or JSON.
// Threads: any. Memory: the heap. Errors: never; a row that failed says why in its place.
#pragma once

#include <lumen/client/matrix_plan.h>

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace lumen::client {

[[nodiscard]] std::string to_markdown(const std::vector<MatrixRow>& rows);
[[nodiscard]] std::string to_csv(const std::vector<MatrixRow>& rows);
[[nodiscard]] nlohmann::ordered_json to_json(const MatrixPlan& plan,
                                             const std::vector<MatrixRow>& rows);

}  // namespace lumen::client
