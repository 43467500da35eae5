// The user's folder for files that can be made anew.
// Threads: any, while nobody changes the environment. Memory: the heap. Errors: empty where the
// environment names no folder.
#pragma once

#include <filesystem>

namespace lumen::models {

// $XDG_CACHE_HOME/lumen, or $HOME/.cache/lumen.
[[nodiscard]] std::filesystem::path cache_folder();

}  // namespace lumen::models
