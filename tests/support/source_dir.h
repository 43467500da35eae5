// Where the checkout lies that the tests were built from.
// Threads: any. Memory: the heap. Errors: none.
#pragma once

#include <filesystem>

namespace lumen::test {

// The path of a file of the checkout; `relative` to its root. The root is compiled into
// source_dir.cc alone, so that ccache serves the other tests of a checkout at another path.
std::filesystem::path source_path(const std::filesystem::path& relative);

#ifdef LUMEN_WITH_TEST_DEVICE
// The plugin that is built of tests/device.
[[nodiscard]] std::filesystem::path device_plugin();
#endif

}  // namespace lumen::test
