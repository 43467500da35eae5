// A backend's answers when its library fails or a request's memory is too small.
// Threads: any. Memory: none. Errors: these are errors.
#pragma once

#include <lumen/base/result.h>

#include <cstddef>
#include <exception>
#include <string>

namespace lumen::backends {

// "running model 'm': REASON", with the reason on one line: libraries break theirs.
[[nodiscard]] Status failed(Code code, const char* doing, const std::string& model,
                            const char* what) noexcept;

// The result of `act`, or its exception as a Status.
template <typename Act>
auto or_failed(Code code, const char* doing, const std::string& model, Act act) -> decltype(act()) {
  try {
    return act();
  } catch (const std::exception& error) {
    return failed(code, doing, model, error.what());
  } catch (...) {
    return failed(code, doing, model, "unknown exception");
  }
}

[[nodiscard]] Status no_room(const std::string& output, size_t bytes) noexcept;

}  // namespace lumen::backends
