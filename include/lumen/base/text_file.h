// read_file: all bytes of a file. Threads: any. Memory: the heap. Errors: a Status with the path
// and the kernel's reason, also for a directory and for a read that fails (std::ifstream throws
// then).
#pragma once

#include <lumen/base/result.h>

#include <filesystem>
#include <string>

namespace lumen {

[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& path);

}  // namespace lumen
