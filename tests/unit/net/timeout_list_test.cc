// TimeoutList with times made up by the test. One thread.
#include <lumen/net/timeout_list.h>

#include <gtest/gtest.h>

namespace lumen::net {
namespace {

TEST(TimeoutList, IsEmptyAtFirst) {
  TimeoutList list(100);
  EXPECT_EQ(UINT64_MAX, list.next_deadline_ns());
  EXPECT_EQ(nullptr, list.take_expired(UINT64_MAX - 1));
}

TEST(TimeoutList, ExpiresInTheOrderOfStartingAndNotBeforeTheTime) {
  TimeoutList list(100);
  TimeoutEntry first, second;
  list.start(first, 1000);
  list.start(second, 1010);
  EXPECT_EQ(1100u, list.next_deadline_ns());
  EXPECT_EQ(nullptr, list.take_expired(1099));
  EXPECT_EQ(&first, list.take_expired(1105));
  EXPECT_EQ(nullptr, list.take_expired(1105));
  EXPECT_EQ(&second, list.take_expired(1110));
  EXPECT_FALSE(second.linked());
}

TEST(TimeoutList, StartingAgainMovesAnEntryToTheEnd) {
  TimeoutList list(100);
  TimeoutEntry first, second;
  list.start(first, 0);
  list.start(second, 10);
  list.start(first, 20);
  EXPECT_EQ(&second, list.oldest());
  EXPECT_EQ(&second, list.take_expired(110));
  EXPECT_EQ(&first, list.take_expired(120));
}

TEST(TimeoutList, AnEntryMovesFromOneListToAnother) {
  TimeoutList head(100), body(50);
  TimeoutEntry entry;
  head.start(entry, 0);
  body.start(entry, 10);
  EXPECT_EQ(UINT64_MAX, head.next_deadline_ns());
  EXPECT_EQ(60u, body.next_deadline_ns());
  entry.unlink();
  EXPECT_EQ(UINT64_MAX, body.next_deadline_ns());
}

}  // namespace
}  // namespace lumen::net
