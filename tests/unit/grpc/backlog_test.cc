// Backlog: bytes go out in the order in which they came, and the budget has its bytes back.
// Threads: one. Memory: the heap. Errors: by gtest.
#include "transports/grpc/backlog.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>
#include <string>

namespace lumen::grpc {
namespace {

constexpr size_t kRoomBytes = 4096;

class BacklogTest : public testing::Test {
 protected:
  BacklogTest() {
    void* const room =
        ::mmap(nullptr, kRoomBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    room_ = {static_cast<char*>(room), kRoomBytes};
    backlog_.use(room_, budget_);
  }
  ~BacklogTest() override { ::munmap(room_.data(), room_.size()); }

  MemoryBudget budget_{kRoomBytes};
  std::span<char> room_;
  Backlog backlog_;
};

TEST_F(BacklogTest, BytesGoOutInTheOrderInWhichTheyCame) {
  std::mt19937 random(7);
  std::string in;
  std::string out;
  for (int i = 0; i < 5'000; ++i) {
    const size_t free = kRoomBytes - backlog_.bytes().size();
    std::string more(std::min<size_t>(random() % 700, free), '\0');
    for (char& one : more) one = static_cast<char>(random());
    ASSERT_TRUE(backlog_.append(more));
    in += more;
    const size_t taken = random() % (backlog_.bytes().size() + 1);
    out += backlog_.bytes().substr(0, taken);
    backlog_.drop(taken);
  }
  out += backlog_.bytes();
  EXPECT_EQ(in, out);
}

TEST_F(BacklogTest, TakesFromTheBudgetOnlyWhileItHasBytes) {
  EXPECT_TRUE(backlog_.append(""));
  EXPECT_EQ(budget_.free_was(), kRoomBytes);
  ASSERT_TRUE(backlog_.append("ab"));
  ASSERT_TRUE(backlog_.append("c"));
  EXPECT_EQ(budget_.free_was(), 0u);
  backlog_.drop(2);
  EXPECT_EQ(budget_.free_was(), 0u);
  backlog_.drop(1);
  EXPECT_EQ(budget_.free_was(), kRoomBytes);
  backlog_.clear();
  EXPECT_EQ(budget_.free_was(), kRoomBytes);
}

TEST_F(BacklogTest, WithoutABudgetTakesNothing) {
  ASSERT_TRUE(budget_.try_take(1));
  EXPECT_FALSE(backlog_.append("a"));
  EXPECT_TRUE(backlog_.is_empty());
  budget_.give_back(1);
  EXPECT_TRUE(backlog_.append("a"));
}

}  // namespace
}  // namespace lumen::grpc
