// Waits near another core: as long as they say at least roughly, in transfers of a line, and
// learnt.
#include <lumen/base/backoff.h>

#include <gtest/gtest.h>

#include <algorithm>

namespace lumen {
namespace {

constexpr size_t kSlots = 1024;

// Was: counted in pauses alone, and where a pause takes 11 ns the quick stage of a pipeline waited
// half as long as meant. Only a lower bound can be held on a machine that others use: a clock that
// has risen since the measurement makes pauses shorter, and never four times.
TEST(ShortWait, LastsAsLongAsItSaysWithAnyLengthOfAPause) {
  EXPECT_GE(short_times.pause_ps, 1'000u);
  constexpr uint64_t kNs = 230'000;
  const uint64_t before = now_ns();
  wait_for(kNs);
  EXPECT_GE(now_ns() - before, kNs / 4);
}

// Was: rounded down, so that where a pause takes longer than a unit the shortest wait was none.
TEST(ShortWait, IsNeverNone) {
  for (const uint64_t pause_ps : {1'000u, 11'000u, 23'000u, 25'600u, 40'000u, 140'000u}) {
    EXPECT_GE(pauses_for(kNearUnitNs, pause_ps), 1u);
    EXPECT_LE(pauses_for(kNearUnitNs, pause_ps) * pause_ps, kNearUnitNs * 1'000 + pause_ps);
  }
}

TEST(CoreDistance, ComesNearTheTimeOfTransfersFromAnyStart) {
  for (const uint64_t start_ns : {CoreDistance::kLeastNs, CoreDistance::kNearNs, uint64_t{900}}) {
    for (const uint64_t transfer_ns : {20u, 45u, 150u, 300u, 600u}) {
      CoreDistance distance(start_ns);
      for (int i = 0; i < 256; ++i) distance.took(transfer_ns);
      EXPECT_NEAR(static_cast<double>(distance.transfer_ns()), static_cast<double>(transfer_ns),
                  0.1 * static_cast<double>(transfer_ns) + 2)
          << "from " << start_ns;
    }
  }
}

// Was: nothing was learnt; waits of 370 ns at most were twelve transfers on one machine and one on
// another, where the two sides took each other's lines for every few items.
TEST(CoreDistance, FollowsCoresThatAreMovedApartAndTogetherAgain) {
  CoreDistance distance(30);
  for (int i = 0; i < 256; ++i) distance.took(300);
  const uint64_t far_ns = distance_wait_ns(distance, 64, kSlots);
  for (int i = 0; i < 256; ++i) distance.took(30);
  const uint64_t near_ns = distance_wait_ns(distance, 64, kSlots);
  EXPECT_GE(far_ns, 3 * near_ns);
}

TEST(CoreDistance, OneLookInWhichTheThreadWasPreemptedChangesLittle) {
  CoreDistance distance(40);
  distance.took(4'000'000);
  EXPECT_LE(distance.transfer_ns(), 60u);
}

// Was: a mean of clipped samples. Where half of the looks met a preempted thread, near cores were
// taken to be hundreds of nanoseconds apart, and every wait was as much longer.
TEST(CoreDistance, LooksThatMetAPreemptedThreadDoNotMoveNearCoresApart) {
  CoreDistance distance(60);
  for (int i = 0; i < 1000; ++i) {
    distance.took(i % 2 == 0 ? 60 : 3'000);
    EXPECT_LE(distance.transfer_ns(), 70u);
  }
}

TEST(CoreDistance, MeasuredAtStartItIsTheFirstFigureOfQueues) {
  const uint64_t found_ns = measure_core_distance();
  EXPECT_GE(found_ns, CoreDistance::kLeastNs);
  EXPECT_LE(found_ns, CoreDistance::kMostNs);
  EXPECT_EQ(start_core_distance().transfer_ns(), found_ns);
}

TEST(KeepDistance, WaitsLongerWhereCoresAreFarAndForASingleItemNotAtAll) {
  for (const uint64_t transfer_ns : {31u, 64u, 150u, 300u}) {
    const CoreDistance distance(transfer_ns);
    EXPECT_EQ(distance_wait_ns(distance, 0, kSlots), 0u);
    EXPECT_EQ(distance_wait_ns(distance, 1, kSlots), 0u);
    EXPECT_EQ(distance_wait_ns(distance, 2, kSlots), wait_unit_ns(distance));
    EXPECT_EQ(distance_wait_ns(distance, 1024, kSlots),
              std::min(kMostDistanceUnits * wait_unit_ns(distance), kMostWaitNs));
    EXPECT_EQ(distance_wait_ns(distance, kLongestBurst + 1, kSlots), 0u);
  }
  EXPECT_EQ(wait_unit_ns(CoreDistance(31)), wait_unit_ns(CoreDistance(64)));
  EXPECT_EQ(wait_unit_ns(CoreDistance(300)), 4 * wait_unit_ns(CoreDistance(64)));
  EXPECT_LE(distance_wait_ns(CoreDistance(1'000), 1024, kSlots), kMostWaitNs);
}

// Was: one bound for all rings. Long enough for 1,024 slots, it left the other side of a ring of
// 256 slots, or of 1,024 in batches, with nothing to do: 182 -> 112 and 788 -> 460 M/s.
TEST(KeepDistance, WaitsForAShorterTimeInARingThatFewClaimsFill) {
  const CoreDistance distance(40);
  EXPECT_EQ(distance_wait_ns(distance, 1024, 1024), kMostDistanceUnits * wait_unit_ns(distance));
  for (const size_t claims : {1u, 4u, 64u, 256u}) {
    EXPECT_EQ(distance_wait_ns(distance, 1024, claims),
              kMostDistanceUnitsOfFewClaims * wait_unit_ns(distance));
  }
}

TEST(Backoff, WaitsLongerEachTimeAndNeverLongerThanTheBound) {
  for (const uint64_t transfer_ns : {31u, 300u, 1'000u}) {
    const CoreDistance distance(transfer_ns);
    Backoff backoff;
    uint64_t last_ns = backoff.next_wait_ns(distance);
    EXPECT_EQ(last_ns, wait_unit_ns(distance));
    for (int i = 0; i < 12; ++i) {
      const uint64_t ns = backoff.next_wait_ns(distance);
      EXPECT_GE(ns, last_ns);
      last_ns = ns;
    }
    EXPECT_EQ(last_ns, std::min(Backoff::kMostUnits * wait_unit_ns(distance), kMostWaitNs));
  }
}

}  // namespace
}  // namespace lumen
