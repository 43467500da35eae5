// ModelQueueSource where threads are held at the spots between two steps: no wake-up is lost, and
// none ends with a worker that has no use for it while another sleeps beside a request.
// Threads: the test's. Memory: the heap. Errors: by gtest; a lost wake-up is a deadline that
// passes.
#include "engine/model_queue_source.h"
#include "engine/sleepers.h"

#include <lumen/base/clock.h>
#include <lumen/queue/mpmc_queue.h>

#include "support/bare_request.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>

namespace lumen::engine {
namespace {

// Long enough for a busy machine, and only waited for by code that is wrong.
constexpr uint64_t kLostNs = 3'000'000'000;

// Holds the worker's thread the first time that it comes by the spot.
class Gate {
 public:
  void hold(ParkSpot spot, uint32_t worker) {
    spot_ = spot;
    worker_ = worker;
    state_.store(kSet);
  }
  void wait_until_held() const {
    while (state_.load() != kHeld) std::this_thread::yield();
  }
  void release() { state_.store(kOff); }
  void pass(ParkSpot spot, uint32_t worker) noexcept {
    int expected = kSet;
    if (state_.load() != kSet || spot != spot_ || worker != worker_) return;
    if (!state_.compare_exchange_strong(expected, kHeld)) return;
    while (state_.load() == kHeld) std::this_thread::yield();
  }

 private:
  enum : int { kOff, kSet, kHeld };
  ParkSpot spot_{};
  uint32_t worker_ = 0;
  std::atomic<int> state_{kOff};
};
Gate gate;
struct GateHooks {
  static void at(ParkSpot spot, uint32_t worker) noexcept { gate.pass(spot, worker); }
};

class Source final : public ModelQueueSource<GateHooks> {
 public:
  Source(size_t capacity, uint32_t submitters, uint32_t workers)
      : ModelQueueSource(Policy::kFair, capacity, submitters, workers) {
    add(models::bare_model(), {});
    add(models::bare_model(1), {});
  }
};

// One ring under Sleepers, where a test can claim a place and publish its request later, as a
// submitter that was preempted in between.
struct OneRing {
  models::InferRequest* try_pop(uint32_t) noexcept {
    models::InferRequest* request = nullptr;
    return ring.try_pop(request) ? request : nullptr;
  }
  [[nodiscard]] size_t size_was() const noexcept { return ring.size_was(); }
  MpmcQueue<models::InferRequest*> ring{4};
};

// A worker that only parks, until it has a request or nobody has woken it for too long.
class Parker {
 public:
  template <typename SourceOrSleepers>
  Parker(SourceOrSleepers& source, uint32_t worker)
      : deadline_ns_(now_ns() + kLostNs), thread_([this, &source, worker] {
          Reason reason(looks_);
          while (request_ == nullptr && now_ns() < deadline_ns_) {
            request_ = source.park(worker, true, deadline_ns_, reason);
          }
        }) {}
  ~Parker() {
    if (thread_.joinable()) thread_.join();
  }
  // Until it has announced its sleep for the `times`-th time and found nothing.
  void wait_for_sleep(uint32_t times = 1) const {
    while (looks_.load() < times && now_ns() < deadline_ns_) std::this_thread::yield();
    EXPECT_GE(looks_.load(), times) << "it does not sleep";
  }
  models::InferRequest* result() {
    thread_.join();
    return request_;
  }

 private:
  struct Reason final : WakeReason {
    explicit Reason(std::atomic<uint32_t>& count) : looks(count) {}
    bool has_reason() noexcept override {
      looks.fetch_add(1);
      return false;
    }
    std::atomic<uint32_t>& looks;
  };
  std::atomic<uint32_t> looks_{0};
  models::InferRequest* request_ = nullptr;
  const uint64_t deadline_ns_;
  std::thread thread_;
};

std::string name_of(ParkSpot spot) {
  const std::array names = {"Prepared", "Announced", "Looked"};
  return names[static_cast<size_t>(spot)];
}

class HeldWorker : public testing::TestWithParam<ParkSpot> {};

// Was: the bit before prepare(). A worker that had taken R1 set its bit; the wake for R1 cleared it
// and went to a doorbell on which nobody waited; the worker prepared, found nothing and slept
// without a bit.
TEST_P(HeldWorker, IsWokenForTheNextRequestThoughTheRingForItsLastOneCameThen) {
  Source source(4, 1, 1);
  std::array<models::BareRequest, 2> requests;
  ASSERT_TRUE(source.push(0, requests[0]));
  ASSERT_EQ(source.try_take(0), &requests[0]);
  gate.hold(GetParam(), 0);
  Parker worker(source, 0);
  gate.wait_until_held();
  source.wake_workers(0);  // for the first
  gate.release();
  worker.wait_for_sleep();
  ASSERT_TRUE(source.push(0, requests[1]));
  source.wake_workers(0);
  EXPECT_EQ(worker.result(), &requests[1]);
}

INSTANTIATE_TEST_SUITE_P(Spots, HeldWorker,
                         testing::Values(ParkSpot::kPrepared, ParkSpot::kAnnounced,
                                         ParkSpot::kLooked),
                         [](const auto& one) { return name_of(one.param); });

// Was: the wake for R2 went to a worker that had just found R1 by itself, and R2 lay beside a
// sleeping worker for as long as R1 took.
TEST(ModelQueueSource, AWorkerThatIsRungAfterItHasFoundARequestPassesTheWakeOn) {
  Source source(4, 1, 2);
  std::array<models::BareRequest, 2> requests;
  Parker sleeper(source, 1);
  sleeper.wait_for_sleep();
  ASSERT_TRUE(source.push(0, requests[0]));  // not woken for yet
  gate.hold(ParkSpot::kLooked, 0);
  Parker finder(source, 0);
  gate.wait_until_held();
  ASSERT_TRUE(source.push(0, requests[1]));
  source.wake_workers(0);
  gate.release();
  EXPECT_EQ(finder.result(), &requests[0]) << "and does not come back for the other";
  EXPECT_EQ(sleeper.result(), &requests[1]);
}

// Was: the wake for R2 went to a worker that could not take it, since the one before was claimed
// and not published. Then R1 was published, its wake went to one worker, and R2 lay beside the
// other.
TEST(Sleepers, ARequestBehindAHeldSubmitterIsTakenByASleeperOnceThatGoesOn) {
  OneRing queue;
  Sleepers<OneRing> sleepers(queue, 2);
  std::array<models::BareRequest, 2> requests;
  Parker one(sleepers, 0);
  Parker other(sleepers, 1);
  one.wait_for_sleep();
  other.wait_for_sleep();
  auto claimed = queue.ring.reserve(1);
  ASSERT_TRUE(queue.ring.try_push(&requests[1]));
  sleepers.wake(1);
  // A worker that was woken has found nothing and sleeps again.
  one.wait_for_sleep(2);
  claimed[0] = &requests[0];
  claimed.done();
  sleepers.wake(1);
  models::InferRequest* const first = one.result();
  models::InferRequest* const second = other.result();
  EXPECT_NE(first, nullptr);
  EXPECT_NE(second, nullptr);
  EXPECT_NE(first, second);
}

TEST(Sleepers, AWakeThatFindsAPollerDoesNotWakeASleeperAsWell) {
  OneRing queue;
  Sleepers<OneRing> sleepers(queue, 4);
  models::BareRequest request;
  models::BareRequest sentinel;
  Parker sleeper(sleepers, 1);
  sleeper.wait_for_sleep();
  ASSERT_TRUE(sleepers.begin_search());
  ASSERT_TRUE(queue.ring.try_push(&request));
  sleepers.wake(1);
  EXPECT_TRUE(sleepers.slept(1));
  EXPECT_EQ(sleepers.end_search(0), &request);
  ASSERT_TRUE(queue.ring.try_push(&sentinel));
  sleepers.wake(1);
  EXPECT_EQ(sleeper.result(), &sentinel);
}

TEST(ModelQueueSource, APollerThatTakesOneOfTwoRequestsWakesASleeperForTheOther) {
  Source source(4, 2, 4);
  std::array<models::BareRequest, 2> requests;
  Parker sleeper(source, 1);
  sleeper.wait_for_sleep();
  ASSERT_TRUE(source.begin_search(0));
  ASSERT_TRUE(source.push(0, requests[0]));
  source.wake_workers(0);
  ASSERT_TRUE(source.push(1, requests[1]));  // its submitter is still in its turn
  EXPECT_EQ(source.end_search(0), &requests[0]);
  EXPECT_EQ(sleeper.result(), &requests[1]);
}

TEST(ModelQueueSource, LetsHalfOfTheWorkersPollAtOnce) {
  Source source(4, 1, 4);
  EXPECT_TRUE(source.begin_search(0));
  EXPECT_TRUE(source.begin_search(1));
  EXPECT_FALSE(source.begin_search(2));
  EXPECT_EQ(source.end_search(1), nullptr);
  EXPECT_TRUE(source.begin_search(3));
}

TEST(ModelQueueSource, LetsASingleWorkerPoll) {
  Source source(4, 1, 1);
  EXPECT_TRUE(source.begin_search(0));
  EXPECT_EQ(source.end_search(0), nullptr);
  EXPECT_TRUE(source.begin_search(0));
}

// A request for one worker alone: that one is woken, wherever it is on its way to sleep, for any
// other sleepers.
class HeldPinnedWorker : public testing::TestWithParam<ParkSpot> {};

TEST_P(HeldPinnedWorker, IsWokenForARequestThatItAloneMayTake) {
  Source source(4, 1, 2);
  source.add(models::bare_model(1), std::array<uint32_t, 1>{1});
  models::BareRequest pinned(1);
  Parker other(source, 0);
  other.wait_for_sleep();
  gate.hold(GetParam(), 1);
  Parker worker(source, 1);
  gate.wait_until_held();
  ASSERT_TRUE(source.push(0, pinned));
  source.wake_workers(0);
  gate.release();
  EXPECT_EQ(worker.result(), &pinned);
  models::BareRequest open;
  ASSERT_TRUE(source.push(0, open));
  source.wake_workers(0);
  EXPECT_EQ(other.result(), &open);
}

INSTANTIATE_TEST_SUITE_P(Spots, HeldPinnedWorker,
                         testing::Values(ParkSpot::kPrepared, ParkSpot::kAnnounced,
                                         ParkSpot::kLooked),
                         [](const auto& one) { return name_of(one.param); });

// The wake was for the open one; the worker takes the other first, which it alone may take.
TEST(ModelQueueSource, AWorkerThatTakesItsOwnRequestWakesASleeperForTheRest) {
  Source source(4, 1, 2);
  source.add(models::bare_model(1), std::array<uint32_t, 1>{0});
  models::BareRequest open;
  models::BareRequest pinned(1);
  pinned.priority = 1;
  Parker first(source, 0);
  first.wait_for_sleep();
  Parker second(source, 1);
  second.wait_for_sleep();
  ASSERT_TRUE(source.push(0, open));
  ASSERT_TRUE(source.push(0, pinned));
  source.wake_workers(0);
  EXPECT_EQ(first.result(), &pinned);
  EXPECT_EQ(second.result(), &open);
}

}  // namespace
}  // namespace lumen::engine
