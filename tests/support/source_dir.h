// Where the checkout lies that the tests were built from.
// Threads: any. Memory: the heap. Errors: none.
#pragma once

#include <filesystem>

namespace lumen::test {

// The path of a file of the checkout; `relative` to its root. The root is compiled into
// source_dir.cc alone, so that ccache serves the other tests of a checkout at another path.
std::filesystem::path source_path(const std::filesystem::path& relative);

}  // namespace lumen::test
