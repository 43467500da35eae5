// Short waits: of the machine's own pauses, as long as they say at least roughly.
#include <lumen/base/backoff.h>

#include <gtest/gtest.h>

namespace lumen {
namespace {

// Was: counted in pauses alone, and where a pause takes 11 ns the quick stage of a pipeline waited half as
// long as meant. Only a lower bound can be held on a machine that others use: a clock that has risen since the
// measurement makes pauses shorter, and never four times.
TEST(ShortWait, LastsAsLongAsItSaysWhateverAPauseTakes) {
  EXPECT_GE(pauses_per_short_wait, 1u);
  constexpr size_t kTimes = 10'000;
  const uint64_t before = now_ns();
  wait_shortly(kTimes);
  EXPECT_GE(now_ns() - before, kTimes * kShortWaitNs / 4);
}

}  // namespace
}  // namespace lumen
