// Watches of descriptors that are somebody else's, and events that come through memory. See
// loop_suite.h.
#include "conformance/loop_suite.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace lumen::net {
namespace {

struct RecordingWatch final : WatchHandler {
  Watch watch;
  int ready = 0;
  int hung_up = 0;
  std::function<void()> hook = [] {};
  void on_ready(Watch&, bool is_hung_up) noexcept override {
    ++ready;
    if (is_hung_up) ++hung_up;
    hook();
  }
};

class LoopWatches : public LoopConformance {
 protected:
  void SetUp() override {
    LoopConformance::SetUp();
    for (int i = 0; i < 2; ++i) {
      int fds[2];
      ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds));
      ours[i] = UniqueFd(fds[0]);
      theirs[i] = UniqueFd(fds[1]);
      watches[i].watch = {fds[0], &watches[i]};
      ASSERT_TRUE(loop_->add(watches[i].watch).ok());
    }
  }
  void TearDown() override {
    for (RecordingWatch& one : watches) {
      if (one.watch.fd >= 0) loop_->remove(one.watch);
    }
    LoopConformance::TearDown();
  }
  void write_to(int which) { ASSERT_EQ(1, ::write(theirs[which].get(), "x", 1)); }
  void read_from(int which) {
    char byte;
    ASSERT_EQ(1, ::read(ours[which].get(), &byte, 1));
  }

  UniqueFd ours[2];
  UniqueFd theirs[2];
  RecordingWatch watches[2];
};

TEST_P(LoopWatches, ToldInEachTurnUntilSomebodyHasReadIt) {
  write_to(0);
  run_until([&] { return watches[0].ready >= 3; });
  EXPECT_EQ(watches[1].ready, 0);
  EXPECT_EQ(watches[0].hung_up, 0);
  read_from(0);
  const int before = watches[0].ready;
  write_to(1);
  run_until([&] { return watches[1].ready >= 3; });
  EXPECT_EQ(watches[0].ready, before);
}

TEST_P(LoopWatches, AHangUpIsToldAsOne) {
  theirs[0].reset();
  run_until([&] { return watches[0].hung_up > 0; });
}

TEST_P(LoopWatches, OneThatIsRemovedInTheTurnIsNotToldAnyMore) {
  for (int i = 0; i < 2; ++i) {
    watches[i].hook = [&] {
      for (RecordingWatch& one : watches) {
        if (one.watch.fd >= 0) loop_->remove(one.watch);
      }
    };
  }
  write_to(0);
  write_to(1);
  run_until([&] { return watches[0].ready + watches[1].ready > 0; });
  for (int turn = 0; turn < 3; ++turn) loop_->run_once(0);
  EXPECT_EQ(watches[0].ready + watches[1].ready, 1);
}

// Polls a ring: news may come at any time, and before it sleeps it must be told of them in another
// way.
struct MemoryHandler final : WakeHandler {
  std::vector<std::string> calls;
  bool has_news = false;
  size_t on_wake() noexcept override {
    calls.emplace_back("wake");
    return std::exchange(has_news, false) ? 1 : 0;
  }
  bool may_spin() noexcept override { return true; }
  bool poll_memory() noexcept override { return has_news; }
  void before_sleep() noexcept override { calls.emplace_back("before"); }
  void after_sleep() noexcept override { calls.emplace_back("after"); }
};

TEST_P(LoopWatches, LooksOnceMoreBetweenTheAnnouncementAndTheSleep) {
  MemoryHandler memory;
  auto loop = GetParam().make(memory);
  ASSERT_TRUE(loop.ok());
  (*loop)->run_once(now_ns() + 1'000'000);
  const auto before = std::ranges::find(memory.calls, "before");
  ASSERT_NE(before, memory.calls.end());
  EXPECT_EQ(*std::next(before), "wake");
  EXPECT_NE(std::ranges::find(before, memory.calls.end(), "after"), memory.calls.end());
}

TEST_P(LoopWatches, NewsInMemoryEndTheWait) {
  MemoryHandler memory;
  auto loop = GetParam().make(memory);
  ASSERT_TRUE(loop.ok());
  memory.has_news = true;
  (*loop)->run_once(UINT64_MAX);  // without an end, were the news not seen
  EXPECT_FALSE(memory.has_news);
}

INSTANTIATE_TEST_SUITE_P(Loops, LoopWatches, testing::ValuesIn(kLoops), name_of_case);

}  // namespace
}  // namespace lumen::net
