// Where the checkout lies that the tests were built from.
// Threads: any. Memory: the heap. Errors: none.
#pragma once

#include <filesystem>

namespace lumen::test {

// `relative`, of the checkout's root. Its folder is compiled into source_dir.cc alone, so that ccache
// gives the objects of all other tests to a checkout at another path.
std::filesystem::path source_path(const std::filesystem::path& relative);

}  // namespace lumen::test
