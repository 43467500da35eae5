// The ring itself: full queues, wake-ups from other threads, buffers; and the choice of a loop.
// One thread, but where a test starts another. Skips where the kernel has no ring for us.
#include "net/uring.h"
#include "net/lent_buffers.h"

#include <lumen/net/loop.h>

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace lumen::net {
namespace {

class UringTest : public testing::Test {
 protected:
  void make(uint32_t entries, uint32_t completions) {
    auto ring = Uring::create(entries, completions);
    if (!ring.ok() && ring.status().code() == Code::kUnsupported) {
      GTEST_SKIP() << ring.status().message();
    }
    ASSERT_TRUE(ring.ok()) << ring.status().message();
    ring_ = std::move(*ring);
    ring_->enable();
  }
  void add_nop(uint64_t user_data) {
    const Uring::Entry entry = ring_->next_entry();
    entry.sqe.opcode = IORING_OP_NOP;
    entry.sqe.user_data = user_data;
  }
  // All that come, in order.
  std::vector<uint64_t> take_all() {
    std::vector<uint64_t> taken;
    while (ring_->completions() > 0 || ring_->has_work_in_kernel()) {
      if (ring_->has_work_in_kernel()) ring_->enter(Uring::Wait::kLook);
      const uint32_t count = ring_->completions();
      for (uint32_t i = 0; i < count; ++i) taken.push_back(ring_->completion(i).user_data);
      ring_->take(count);
    }
    return taken;
  }

  std::unique_ptr<Uring> ring_;
};

TEST_F(UringTest, LosesNoCompletionOfMoreThanItsQueueHolds) {
  make(8, 16);
  if (ring_ == nullptr) return;
  std::vector<uint64_t> wanted;
  for (uint64_t i = 0; i < 100; ++i) {
    if (ring_->room() == 0) ring_->enter(Uring::Wait::kNo);
    add_nop(i);
    wanted.push_back(i);
  }
  ring_->enter(Uring::Wait::kLook);
  EXPECT_EQ(ring_->completions(), 16u);
  EXPECT_EQ(take_all(), wanted);
}

TEST_F(UringTest, AFullQueueOfEntriesSaysSo) {
  make(8, 16);
  if (ring_ == nullptr) return;
  for (uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(ring_->room(), 8 - i);
    add_nop(i);
  }
  EXPECT_EQ(ring_->room(), 0u);
  ring_->enter(Uring::Wait::kNo);
  EXPECT_EQ(ring_->room(), 8u);
  EXPECT_EQ(take_all().size(), 8u);
}

TEST_F(UringTest, AnotherThreadEndsItsWait) {
  make(8, 16);
  if (ring_ == nullptr) return;
  bool is_told = false;
  std::thread other([&] { is_told = ring_->tell(7); });
  other.join();
  if (!is_told) GTEST_SKIP() << "this kernel has no MSG_RING without a ring; an eventfd serves";
  ring_->enter(Uring::Wait::kForOne, 10'000'000'000u);
  EXPECT_EQ(take_all(), std::vector<uint64_t>{7});
}

TEST_F(UringTest, AWaitEndsAtItsTimeout) {
  make(8, 16);
  if (ring_ == nullptr) return;
  ring_->enter(Uring::Wait::kForOne, 1'000'000);
  EXPECT_EQ(ring_->completions(), 0u);
}

TEST_F(UringTest, ASocketAboveTheTableHasNoPlace) {
  make(8, 16);
  if (ring_ == nullptr) return;
  EXPECT_FALSE(ring_->set_file(0, 0)) << "there is no table";
  ASSERT_TRUE(ring_->make_file_table(4).ok());
  EXPECT_TRUE(ring_->set_file(3, 0));
  EXPECT_TRUE(ring_->set_file(3, -1));
  EXPECT_FALSE(ring_->set_file(4, 0));
}

TEST_F(UringTest, ABufferThatNobodyHasLentIsABug) {
  make(8, 16);
  if (ring_ == nullptr) return;
  LentBuffers lent;
  ASSERT_TRUE(lent.create(*ring_).ok());
  std::string foreign(LentBuffers::kBytes, '\0');
  EXPECT_DEATH(lent.give_back(foreign), "CHECK");
  EXPECT_DEATH(lent.give_back(lent.lend(3, 10).subspan(1)), "CHECK");
}

// --- the choice ----------------------------------------------------------------------------------

TEST(ChooseLoop, EpollIsTakenWithoutATrial) {
  const auto choice = choose_loop(LoopKind::kEpoll);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->kind, LoopKind::kEpoll);
  EXPECT_EQ(choice->why, "as set");
}

TEST(ChooseLoop, AutoSaysWhatATrialOrTheKernelSaid) {
  const auto choice = choose_loop(LoopKind::kAuto);
  ASSERT_TRUE(choice.ok()) << choice.status().message();
  EXPECT_NE(choice->kind, LoopKind::kAuto);
  EXPECT_NE(choice->why.find("io_uring"), std::string::npos) << choice->why;
}

TEST(ChooseLoop, IoUringIsTakenWhereThereIsOneAndRefusedWithTheWayOutElsewhere) {
  const auto choice = choose_loop(LoopKind::kIoUring);
  if (choice.ok()) {
    EXPECT_EQ(choice->kind, LoopKind::kIoUring);
  } else {
    EXPECT_NE(choice.status().message().find("--loop epoll"), std::string_view::npos);
  }
}

}  // namespace
}  // namespace lumen::net
