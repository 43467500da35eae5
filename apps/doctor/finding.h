// Finding: the result of one check of `lumen doctor`, and how to make it better. Threads: a value.
// Memory: strings. Errors: a value that could not be read is a finding too, kUnknown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace lumen::doctor {

enum class State : uint8_t {
  kOk,
  kWarn,     // `mend` says how to mend it
  kUnknown,  // the value says why: "not readable: ..."
};

[[nodiscard]] constexpr std::string_view name_of(State state) noexcept {
  constexpr std::string_view kNames[] = {"ok", "warn", "unknown"};
  return kNames[static_cast<uint8_t>(state)];
}

using Value = std::variant<double, std::string>;

struct Finding {
  Value value{};
  std::string unit{};  // of a number; "bytes" and "ns" are shown scaled
  std::string note{};  // shown behind the value
  State state = State::kOk;
  std::string mend{};  // the command or the setting
  std::string gain{};  // the gain, a short clause

  // The same as a warning.
  [[nodiscard]] Finding warn(std::string how, std::string why) && {
    state = State::kWarn;
    mend = std::move(how);
    gain = std::move(why);
    return std::move(*this);
  }
};

struct Line {
  std::string name;
  Finding finding;
};

[[nodiscard]] inline Finding number(double value, std::string unit, std::string note = {}) {
  return {.value = value, .unit = std::move(unit), .note = std::move(note)};
}
[[nodiscard]] inline Finding text(std::string value, std::string note = {}) {
  return {.value = std::move(value), .note = std::move(note)};
}
[[nodiscard]] inline Finding unknown(std::string_view why) {
  return {.value = "not readable: " + std::string(why), .state = State::kUnknown};
}

}  // namespace lumen::doctor
