// Backlog: bytes go out in the order in which they came, and the budgets have their bytes back.
// Threads: one. Memory: the heap. Errors: by gtest.
#include "transports/grpc/backlog.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>

namespace lumen::grpc {
namespace {

constexpr size_t kRoomBytes = 4096;

class BacklogTest : public testing::Test {
 protected:
  BacklogTest() {
    void* const room =
        ::mmap(nullptr, kRoomBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    room_ = {static_cast<char*>(room), kRoomBytes};
    backlog_.use(room_, {budget_, thread_});
  }
  ~BacklogTest() override { ::munmap(room_.data(), room_.size()); }

  MemoryBudget budget_{kRoomBytes};  // of backlogs
  transports::ThreadMemory thread_{2 * kRoomBytes};
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

// Memory that an idle request of any transport gives back.
struct KeptPages final : transports::MemoryHolder {
  explicit KeptPages(MemoryBudget& of) : budget(of) {}
  size_t drop_kept_pages() noexcept override {
    const size_t bytes = std::exchange(kept, 0);
    budget.give_back(bytes);
    return bytes;
  }
  void on_memory_freed() noexcept override { ++told; }
  size_t charged_bytes() const noexcept override { return kept; }
  MemoryBudget& budget;
  size_t kept = 0;
  int told = 0;
};

TEST_F(BacklogTest, WithoutABudgetTakesNothing) {
  for (MemoryBudget* const budget : {&budget_, &thread_.budget()}) {
    const size_t free = budget->free_was();
    ASSERT_TRUE(budget->try_take(free));
    EXPECT_FALSE(backlog_.append("a"));
    EXPECT_TRUE(backlog_.is_empty());
    budget->give_back(free);
    EXPECT_EQ(budget_.free_was(), kRoomBytes);
    EXPECT_EQ(thread_.budget().free_was(), 2 * kRoomBytes);
    EXPECT_TRUE(backlog_.append("a"));
    backlog_.clear();
  }
}

TEST_F(BacklogTest, TakesThePagesThatIdleRequestsKeepAndTellsThatItGivesBack) {
  KeptPages idle(thread_.budget());
  thread_.add(idle);
  ASSERT_TRUE(thread_.budget().try_take(2 * kRoomBytes));
  idle.kept = 2 * kRoomBytes;
  EXPECT_TRUE(thread_.is_accounted_for());
  ASSERT_TRUE(backlog_.append("a"));
  EXPECT_EQ(idle.kept, 0u);
  EXPECT_FALSE(thread_.is_accounted_for());
  EXPECT_EQ(idle.told, 0);
  backlog_.clear();
  EXPECT_EQ(idle.told, 1);
  EXPECT_TRUE(thread_.is_accounted_for());
}

}  // namespace
}  // namespace lumen::grpc
