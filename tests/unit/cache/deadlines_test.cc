// Deadlines alone: how they are rounded, counted, and their numbers used again.
#include <lumen/cache/detail/deadlines.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace lumen::cache {
namespace {

constexpr uint32_t kTickBits = 20;
constexpr uint64_t kTickNs = uint64_t{1} << kTickBits;
constexpr uint64_t kYearNs = 365ull * 24 * 3600 * 1'000'000'000;

class DeadlinesTest : public testing::Test {
 protected:
  DeadlineId put(uint64_t now_ns, uint64_t ttl_ns) {
    const DeadlineId id = deadlines_.bucket_for(now_ns, ttl_ns, kTickBits);
    EXPECT_NE(id, kNoDeadline);
    deadlines_.add(id);
    return id;
  }
  Deadlines<false> deadlines_{std::pmr::new_delete_resource()};
};

TEST_F(DeadlinesTest, RoundsWithinATickOrAThousandthAndNeverLate) {
  std::mt19937_64 random(1);
  uint64_t now = kYearNs;
  for (int i = 0; i < 200'000; ++i) {
    now += random() % (4 * kTickNs);
    const uint64_t ttl = 1 + (random() >> (2 + random() % 62));
    const DeadlineId id = put(now, ttl);
    const uint64_t end = deadlines_.tick_of(id) << kTickBits;
    const uint64_t deadline = now + ttl;
    const uint64_t may_lose = std::max(kTickNs, ttl / 1'024);
    ASSERT_GT(deadlines_.tick_of(id), now >> kTickBits) << "ended as it was put, ttl " << ttl;
    ASSERT_LE(deadline, end + may_lose) << "too early, ttl " << ttl;
    if (ttl >= kTickNs) {
      ASSERT_LE(end, deadline) << "late, ttl " << ttl;
    } else {
      ASSERT_LT(end, deadline + kTickNs) << "late by a tick, ttl " << ttl;
    }
    deadlines_.remove(id);
  }
}

TEST_F(DeadlinesTest, EndsNothingThatIsPutForAnAge) {
  const DeadlineId id = put(kYearNs, kEndlessNs);
  EXPECT_EQ(id, kNever);
  deadlines_.advance(kNeverTick - 1);
  EXPECT_EQ(deadlines_.live(), 1u);
  EXPECT_FALSE(deadlines_.ended(id, kNeverTick - 1));
  EXPECT_NE(put(kYearNs, kEndlessNs - 1), kNever);
}

// Was: the bucket of an entry with less than a tick was remembered, and given again when it was
// over.
TEST_F(DeadlinesTest, DoesNotRememberABucketThatHasJustEnded) {
  const uint64_t start = 1'000 * kTickNs;
  put(start + kTickNs - kTickNs / 16, kTickNs / 8);
  const uint64_t now = start + kTickNs + kTickNs / 16;
  const DeadlineId id = put(now, kTickNs / 8);
  EXPECT_FALSE(deadlines_.ended(id, now >> kTickBits));
  EXPECT_TRUE(deadlines_.ended(id, (now >> kTickBits) + 1));
}

// Was: clocks of two CPUs differ by some nanoseconds; a deadline that had passed was counted as
// live.
TEST_F(DeadlinesTest, CountsRightWhenAClockIsATickBehind) {
  const uint64_t start = 1'000 * kTickNs;
  deadlines_.advance(start >> kTickBits);
  const DeadlineId id = put(start - 1, kTickNs);
  EXPECT_EQ(deadlines_.live(), 1u);
  deadlines_.remove(id);
  EXPECT_EQ(deadlines_.live(), 0u);
  EXPECT_EQ(deadlines_.reclaimable(), 0u);
}

TEST_F(DeadlinesTest, CountsExactlyWhileTwoMillionEntriesEndAtOnce) {
  const uint64_t start = 1'000 * kTickNs;
  const uint64_t ttl = 1'000 * kTickNs;
  constexpr size_t kEntries = 2'000'000;
  for (size_t i = 0; i < kEntries; ++i) put(start, ttl);
  put(start, ttl + kTickNs);
  const uint64_t end = (start + ttl) >> kTickBits;
  EXPECT_EQ(deadlines_.live_at(end - 1), kEntries + 1);
  EXPECT_EQ(deadlines_.live_at(end), 1u);
  deadlines_.advance(end - 1);
  EXPECT_EQ(deadlines_.live(), kEntries + 1);
  deadlines_.advance(end);
  EXPECT_EQ(deadlines_.live(), 1u);
  EXPECT_EQ(deadlines_.reclaimable(), kEntries);
  deadlines_.advance(end + 1);
  EXPECT_EQ(deadlines_.live(), 0u);
}

// A model of counts beside it: entries come, change their deadlines, go and end, with jumps of
// time.
TEST_F(DeadlinesTest, CountsAsAModelCounts) {
  std::mt19937_64 random(2);
  std::vector<DeadlineId> entries;
  std::vector<uint64_t> ends;
  uint64_t now = kYearNs;
  const auto live = [&] {
    return static_cast<size_t>(std::count_if(ends.begin(), ends.end(),
                                             [&](uint64_t end) { return end > now >> kTickBits; }));
  };
  for (int i = 0; i < 40'000; ++i) {
    const uint64_t ttl = 1 + (random() >> (2 + random() % 61));
    switch (random() % 8) {
      case 0: now += random() % (100 * kTickNs); break;
      case 1:
        if (random() % 500 == 0) now += kYearNs / 4;
        break;
      case 2:
      case 3:
        if (!entries.empty()) {
          const size_t at = random() % entries.size();
          deadlines_.remove(entries[at]);
          entries[at] = entries.back();
          ends[at] = ends.back();
          entries.pop_back();
          ends.pop_back();
        }
        break;
      case 4:
        if (!entries.empty()) {
          const size_t at = random() % entries.size();
          const DeadlineId to = deadlines_.bucket_for(now, ttl, kTickBits);
          deadlines_.move(entries[at], to);
          entries[at] = to;
          ends[at] = deadlines_.tick_of(to);
        }
        break;
      default: entries.push_back(put(now, ttl)); ends.push_back(deadlines_.tick_of(entries.back()));
    }
    for (size_t at = 0; at < entries.size(); at += 97) {
      ASSERT_EQ(deadlines_.tick_of(entries[at]), ends[at]) << "a number means another time";
    }
    if (i % 50 != 0) continue;
    ASSERT_EQ(deadlines_.live_at(now >> kTickBits), live());
    deadlines_.advance(now >> kTickBits);
    ASSERT_EQ(deadlines_.live(), live());
    ASSERT_EQ(deadlines_.reclaimable(), entries.size() - live());
  }
  EXPECT_GT(entries.size(), 1'000u);
}

TEST_F(DeadlinesTest, RevivesNothingWhenNobodyTicksForAYear) {
  const uint64_t start = 1'000 * kTickNs;
  std::vector<DeadlineId> old;
  for (uint64_t ttl = kTickNs; ttl < 3'000 * kTickNs; ttl += kTickNs)
    old.push_back(put(start, ttl));
  // Numbers are used again for entries that are put a year later, but none of an entry that is
  // still there.
  const uint64_t later = start + kYearNs;
  std::set<DeadlineId> fresh;
  for (uint64_t ttl = kTickNs; ttl < 3'000 * kTickNs; ttl += kTickNs) fresh.insert(put(later, ttl));
  for (const DeadlineId id : old) {
    ASSERT_TRUE(deadlines_.ended(id, later >> kTickBits));
    ASSERT_FALSE(fresh.contains(id));
  }
  EXPECT_EQ(deadlines_.reclaimable(), old.size());
  // Once they are out of the table, they are.
  for (const DeadlineId id : old) deadlines_.remove(id);
  const size_t bytes = deadlines_.bytes();
  for (uint64_t ttl = kTickNs; ttl < 2'000 * kTickNs; ttl += kTickNs) {
    put(later + kYearNs, ttl);
  }
  EXPECT_EQ(deadlines_.bytes(), bytes) << "more numbers than there were entries";
}

TEST_F(DeadlinesTest, HasNoMoreBucketsThanEntries) {
  // One entry at a time, each with another deadline: the first array of numbers is enough for ever.
  uint64_t now = kYearNs;
  put(now, kTickNs);
  const size_t bytes = deadlines_.bytes();
  for (int i = 0; i < 10'000; ++i) {
    const DeadlineId id = put(now, kTickNs * static_cast<uint64_t>(2 + i % 1'500));
    deadlines_.remove(id);
    if (i % 16 == 0) now += 7 * kTickNs;
  }
  EXPECT_LE(deadlines_.bytes(), bytes + 5'000) << "one more level at most";
}

// A put that fails after it has asked for its deadline leaves a bucket without an entry: one, not
// many.
TEST_F(DeadlinesTest, KeepsOneBucketOfThoseThatWereAskedForInVain) {
  const uint64_t now = kYearNs;
  put(now, kTickNs);
  const size_t bytes = deadlines_.bytes();
  for (uint64_t i = 2; i < 2'000; ++i) {
    static_cast<void>(deadlines_.bucket_for(now, i * kTickNs, kTickBits));
  }
  EXPECT_LE(deadlines_.bytes(), bytes + 5'000);
  deadlines_.advance((now >> kTickBits) + 3'000);
  EXPECT_EQ(deadlines_.live(), 0u);
  EXPECT_EQ(deadlines_.reclaimable(), 1u);
}

TEST_F(DeadlinesTest, GivesTheSameBucketForTheSameDeadline) {
  const uint64_t now = kYearNs;
  const DeadlineId id = put(now, 60 * kTickNs);
  EXPECT_EQ(put(now, 60 * kTickNs), id);
  EXPECT_EQ(put(now, 59 * kTickNs + kTickNs / 2), put(now, 59 * kTickNs));
  EXPECT_NE(put(now, 61 * kTickNs), id);
  // The remembered one is not given when its time is over.
  const uint64_t later = now + 60 * kTickNs;
  const DeadlineId fresh = put(later, 60 * kTickNs);
  EXPECT_NE(fresh, id);
  EXPECT_FALSE(deadlines_.ended(fresh, later >> kTickBits));
}

// Ticks of a nanosecond have 51 levels; each is filled twice over, the second time half a turn
// later.
TEST_F(DeadlinesTest, RefusesWhenAllNumbersAreTakenAndGoesOnWhenOneIsFree) {
  const uint64_t last = uint64_t{1} << 40;
  std::vector<DeadlineId> taken;
  DeadlineId id = 0;
  const auto fill = [&](uint32_t k, uint64_t now) {
    for (uint64_t place = 0; place < 1'024 && id != kNoDeadline; ++place) {
      id = deadlines_.bucket_for(now, (1'024 + place) << k, 0);
      if (id == kNoDeadline) return;
      deadlines_.add(id);
      taken.push_back(id);
    }
  };
  for (uint32_t k = 24; k-- > 0;) fill(k, last - (uint64_t{1} << (10 + k)));
  for (uint32_t k = 0; k < 51; ++k) fill(k, last);
  ASSERT_EQ(id, kNoDeadline);
  EXPECT_EQ(std::set<DeadlineId>(taken.begin(), taken.end()).size(),
            Deadlines<false>::kMostBuckets - 1);
  const auto a_live_one = std::find_if(
      taken.begin(), taken.end(), [&](DeadlineId one) { return deadlines_.tick_of(one) > last; });
  ASSERT_NE(a_live_one, taken.end());
  const DeadlineId of_another = taken.back();
  const uint64_t its_tick = deadlines_.tick_of(of_another);
  deadlines_.remove(*a_live_one);
  id = deadlines_.bucket_for(last, (uint64_t{2'047} << 50), 0);
  EXPECT_EQ(id, *a_live_one);
  EXPECT_EQ(deadlines_.tick_of(of_another), its_tick);
}

// As many buckets as there can be end in one step, and it takes no longer than a look at each.
TEST_F(DeadlinesTest, EndsManyBucketsInOneStepForAnyNumberOfEntries) {
  const uint64_t now = kYearNs;
  size_t put_so_far = 0;
  for (uint32_t k = 0; k < 30; ++k) {
    for (uint64_t place = 0; place < 1'024; ++place, put_so_far += 2) {
      put(now, ((1'024 + place) << k) * kTickNs);
      put(now, ((1'024 + place) << k) * kTickNs);
    }
  }
  EXPECT_EQ(deadlines_.live(), put_so_far);
  deadlines_.advance((now >> kTickBits) + (uint64_t{2'048} << 30));
  EXPECT_EQ(deadlines_.live(), 0u);
  EXPECT_EQ(deadlines_.reclaimable(), put_so_far);
}

TEST(SharedDeadlines, AnswerReadersForAnyNumberWhileTheArrayGrows) {
  Deadlines<true> deadlines(std::pmr::new_delete_resource());
  for (uint64_t i = 1; i < 20'000; ++i) {
    const DeadlineId id = deadlines.bucket_for(kYearNs, i * 3 * kTickNs, kTickBits);
    ASSERT_NE(id, kNoDeadline);
    deadlines.add(id);
    ASSERT_FALSE(deadlines.ended(id, kYearNs >> kTickBits));
    // A number that a reader has caught in the middle of a write.
    static_cast<void>(deadlines.ended(UINT16_MAX, 0));
  }
}

}  // namespace
}  // namespace lumen::cache
