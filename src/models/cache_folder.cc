// See the header.
#include "models/cache_folder.h"

#include <cstdlib>

namespace lumen::models {

std::filesystem::path cache_folder() {
  // The XDG base directory specification: a path that is not absolute is to be ignored.
  const auto absolute = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && value[0] == '/' ? std::filesystem::path(value)
                                               : std::filesystem::path();
  };
  std::filesystem::path folder = absolute("XDG_CACHE_HOME");
  if (folder.empty() && !absolute("HOME").empty()) folder = absolute("HOME") / ".cache";
  return folder.empty() ? folder : folder / "lumen";
}

}  // namespace lumen::models
