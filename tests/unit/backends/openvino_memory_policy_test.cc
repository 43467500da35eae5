// A mapping that a library has bound to a node is one with its neighbours again.
// Threads: the test's. Memory: a mapping of the test. Errors: by gtest.
#include "backends/openvino/memory_policy.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>

namespace lumen::backends::openvino {
namespace {

constexpr size_t kPage = 4096;

ptrdiff_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
}

TEST(MemoryPolicy, PagesThatWereBoundMergeWithTheirNeighboursAgain) {
  constexpr size_t kPages = 64;
  void* memory =
      ::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const ptrdiff_t before = mappings();
  // Every other page, as OpenVINO binds its buffers between those of others.
  const unsigned long node_0 = 1;
  for (size_t page = 1; page < kPages; page += 2) {
    char* address = static_cast<char*>(memory) + page * kPage;
    if (::syscall(SYS_mbind, address, kPage, 2 /* MPOL_BIND */, &node_0, 64ul, 0u) != 0) {
      (void)::munmap(memory, kPages * kPage);
      GTEST_SKIP() << "mbind is not allowed here";
    }
  }
  ASSERT_GE(mappings(), before + 60);
  EXPECT_GE(release_bound_mappings(), kPages / 2);
  EXPECT_LE(mappings(), before + 2);
  (void)::munmap(memory, kPages * kPage);
}

}  // namespace
}  // namespace lumen::backends::openvino
