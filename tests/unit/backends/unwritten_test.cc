// Memory that still holds its filling. Threads: one. Memory: the stack. Errors: by gtest.
#include "backends/unwritten.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace lumen::backends {
namespace {

TEST(UnwrittenTest, HoldsOnlyTheFillingUntilOneByteIsWritten) {
  std::array<unsigned char, 100> memory{};
  for (const int filling : kFillings) {
    std::memset(memory.data(), filling, memory.size());
    EXPECT_TRUE(holds_only(filling, memory.data(), memory.size()));
    memory.back() = 0;
    EXPECT_FALSE(holds_only(filling, memory.data(), memory.size()));
    EXPECT_TRUE(holds_only(filling, memory.data(), memory.size() - 1));
  }
  EXPECT_FALSE(holds_only(kFillings[0], memory.data(), 0)) << "nothing was to be written";
}

TEST(UnwrittenTest, NoOutputEqualsBothFillings) { EXPECT_NE(kFillings[0], kFillings[1]); }

}  // namespace
}  // namespace lumen::backends
