// The output of `lumen doctor`: aligned lines of 80 columns for people, an array of objects for
// programs (docs/formats/doctor.md).
// Threads: any. Memory: strings. Errors: never.
#pragma once

#include "doctor/finding.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace lumen::doctor {

inline constexpr size_t kColumns = 80;

[[nodiscard]] std::string to_text(const std::vector<Line>& lines, bool with_colour);
[[nodiscard]] nlohmann::ordered_json to_json(const std::vector<Line>& lines);
[[nodiscard]] size_t count_of(const std::vector<Line>& lines, State state) noexcept;

}  // namespace lumen::doctor
