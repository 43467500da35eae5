// Every queue type between I/O threads and workers keeps the same promises: each request comes out
// once and in its submitter's order, a full one says so, and no wake-up is lost or taken by
// another.
// Threads: as WorkSource says. Memory: the heap. Errors: by gtest; a lost wake-up is a time limit.
#include "engine/work_source.h"

#include <lumen/base/clock.h>

#include "support/bare_request.h"
#include "support/stress.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <ostream>
#include <set>
#include <thread>
#include <vector>

namespace lumen::engine {
namespace {

constexpr uint64_t kNever = UINT64_MAX;

// Answers no, and notes that it was asked: then the sleep was announced.
class Asked final : public WakeReason {
 public:
  bool has_reason() noexcept override {
    // sync[test.asked]: release; pairs with wait()
    asked_.fetch_add(1, std::memory_order_release);
    asked_.notify_all();
    return false;
  }
  void wait() const noexcept {
    asked_.wait(0,
                std::memory_order_acquire);  // sync[test.asked]: acquire; it sleeps, or nearly so
  }

 private:
  std::atomic<uint32_t> asked_{0};
};

class WorkSourceTest : public testing::TestWithParam<models::QueueType> {
 protected:
  void make(uint32_t submitters, uint32_t workers, size_t capacity) {
    source = make_work_source(
        {.queue_type = GetParam(), .thread_count = workers, .queue_capacity = capacity},
        submitters);
    source->add(models::bare_model(), {});
  }
  void done(uint32_t worker) {
    if (auto* load = source->outstanding(worker)) load->fetch_sub(1, std::memory_order_relaxed);
  }
  std::unique_ptr<WorkSource> source;
};

TEST_P(WorkSourceTest, GivesRequestsInTheOrderOfTheirSubmitter) {
  make(1, 1, 16);
  std::array<models::BareRequest, 10> requests;
  EXPECT_TRUE(source->was_empty(0));
  EXPECT_EQ(source->try_take(0), nullptr);
  for (models::InferRequest& request : requests) ASSERT_TRUE(source->push(0, request));
  source->wake_workers(0);
  EXPECT_FALSE(source->was_empty(0));
  for (models::InferRequest& request : requests) EXPECT_EQ(source->try_take(0), &request);
  EXPECT_EQ(source->try_take(0), nullptr);
  EXPECT_TRUE(source->was_empty(0));
}

TEST_P(WorkSourceTest, RefusesWhenItIsFullAndTakesAgainOnceThereIsRoom) {
  make(1, 1, 4);
  std::array<models::BareRequest, 5> requests;
  for (size_t i = 0; i < 4; ++i) ASSERT_TRUE(source->push(0, requests[i]));
  EXPECT_FALSE(source->push(0, requests[4]));
  EXPECT_EQ(source->try_take(0), &requests[0]);
  EXPECT_TRUE(source->push(0, requests[4]));
  for (size_t i = 1; i < 5; ++i) EXPECT_EQ(source->try_take(0), &requests[i]);
}

TEST_P(WorkSourceTest, ParkReturnsARequestThatIsThereAtOnce) {
  make(1, 1, 4);
  models::BareRequest request;
  Asked reason;
  ASSERT_TRUE(source->push(0, request));
  EXPECT_EQ(source->park(0, true, kNever, reason), &request);
}

TEST_P(WorkSourceTest, ParkEndsAtItsDeadline) {
  make(1, 1, 4);
  Asked reason;
  const uint64_t until = now_ns() + 2'000'000;
  EXPECT_EQ(source->park(0, true, until, reason), nullptr);
  EXPECT_GE(now_ns(), until);
}

// Was, of `naive`: such a deadline became a negative time, so in the past, and park() returned at
// once.
TEST_P(WorkSourceTest, ParkSleepsThoughItsDeadlineIsFurtherAwayThanAClockCanSay) {
  make(1, 1, 4);
  Asked sleeps;
  models::InferRequest* got = nullptr;
  std::thread sleeper([&] {
    got = source->park(0, true, UINT64_MAX - 1, sleeps);
    if (got == nullptr && source->was_empty(0)) return;  // woken by nothing
    if (got == nullptr) got = source->try_take(0);       // some types only wake
  });
  sleeps.wait();
  for (const uint64_t until = now_ns() + 2'000'000; now_ns() < until;) std::this_thread::yield();
  models::BareRequest request;
  ASSERT_TRUE(source->push(0, request));
  source->wake_workers(0);
  sleeper.join();
  EXPECT_EQ(got, &request);
}

TEST_P(WorkSourceTest, ParkEndsForAReasonThatIsThere) {
  make(1, 1, 4);
  struct Reason final : WakeReason {
    bool has_reason() noexcept override { return true; }
  } reason;
  EXPECT_EQ(source->park(0, true, kNever, reason), nullptr);
  EXPECT_EQ(source->park(0, false, kNever, reason), nullptr);
}

TEST_P(WorkSourceTest, AWorkerThatMayNotTakeLeavesTheRequest) {
  make(1, 1, 4);
  models::BareRequest request;
  ASSERT_TRUE(source->push(0, request));
  source->wake_workers(0);
  Asked reason;
  EXPECT_EQ(source->park(0, false, now_ns() + 1'000'000, reason), nullptr);
  EXPECT_EQ(source->try_take(0), &request);
}

// Was: one doorbell for all workers. A wake that told worker 0 of room in its instance was taken by
// worker 1, which had just come to sleep, and worker 0 slept for ever.
TEST_P(WorkSourceTest, AWakeUpIsNotTakenByAnotherWorkerThatComesToSleep) {
  for (int round = 0; round < 200; ++round) {
    make(1, 2, 4);
    Asked sleeps;
    std::atomic<bool> in_time{false};
    std::thread sleeper([&] {
      const uint64_t until = now_ns() + 20'000'000'000u;
      (void)source->park(0, false, until, sleeps);
      in_time.store(now_ns() < until);
    });
    sleeps.wait();
    source->wake(0);
    Asked other;
    (void)source->park(1, true, now_ns() + 100'000, other);
    sleeper.join();
    ASSERT_TRUE(in_time.load()) << "round " << round;
  }
}

// Where any worker may take any request; in spsc each is for one worker from the start.
class SharedSourceTest : public WorkSourceTest {};

// Was, of `naive`: notify_one() told the worker whose instance was full, which slept on; the worker
// that had room was told of nothing.
TEST_P(SharedSourceTest, ARequestWakesTheWorkerThatMayTakeItNotTheOneThatMayNot) {
  for (int round = 0; round < 100; ++round) {
    make(1, 2, 4);
    Asked full_sleeps;
    std::thread full(
        [&] { (void)source->park(0, false, now_ns() + 20'000'000'000u, full_sleeps); });
    full_sleeps.wait();
    Asked free_sleeps;
    models::InferRequest* got = nullptr;
    std::thread free([&] {
      got = source->park(1, true, now_ns() + 5'000'000'000u, free_sleeps);
      if (got == nullptr) got = source->try_take(1);  // some types only wake
    });
    free_sleeps.wait();
    models::BareRequest request;
    ASSERT_TRUE(source->push(0, request));
    source->wake_workers(0);
    const uint64_t woken_at_ns = now_ns();
    free.join();
    EXPECT_LT(now_ns() - woken_at_ns, 4'000'000'000u) << "round " << round;
    EXPECT_EQ(got, &request);
    source->wake(0);
    full.join();
    if (HasFailure()) return;
  }
}

// Workers that always park before they take: a lost wake-up leaves a request behind, and the test
// at its time limit.
TEST_P(WorkSourceTest, EveryRequestComesOutOnceThoughWorkersParkForEachOne) {
  constexpr uint32_t kSubmitters = 2;
  constexpr uint32_t kWorkers = 3;
  const uint64_t each = test::stress_count(20'000);
  make(kSubmitters, kWorkers, 8);
  std::vector<models::BareRequest> requests(kSubmitters * each);
  std::vector<std::atomic<uint8_t>> taken(requests.size());
  std::atomic<uint64_t> left{requests.size()};
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;
  workers.reserve(kWorkers);
  for (uint32_t w = 0; w < kWorkers; ++w) {
    workers.emplace_back([&, w] {
      struct Stop final : WakeReason {
        explicit Stop(const std::atomic<bool>& flag) : stop(flag) {}
        bool has_reason() noexcept override { return stop.load(); }
        const std::atomic<bool>& stop;
      } reason(stop);
      std::array<models::InferRequest*, kSubmitters> last{};
      while (!stop.load()) {
        models::InferRequest* request = source->park(w, true, kNever, reason);
        if (request == nullptr) request = source->try_take(w);
        if (request == nullptr) continue;
        done(w);
        const auto index =
            static_cast<size_t>(static_cast<models::BareRequest*>(request) - requests.data());
        EXPECT_EQ(taken[index].fetch_add(1), 0);
        const size_t submitter = index / each;
        EXPECT_LT(last[submitter], request) << "one worker sees each submitter's order";
        last[submitter] = request;
        left.fetch_sub(1);
      }
    });
  }
  std::vector<std::thread> submitters;
  submitters.reserve(kSubmitters);
  for (uint32_t s = 0; s < kSubmitters; ++s) {
    submitters.emplace_back([&, s] {
      for (uint64_t i = 0; i < each; ++i) {
        while (!source->push(s, requests[s * each + i])) {
          source->wake_workers(s);
          std::this_thread::yield();
        }
        // As a turn of the loop does: sometimes one, sometimes several.
        if (i % 3 == 0 || i + 1 == each) source->wake_workers(s);
      }
    });
  }
  for (std::thread& submitter : submitters) submitter.join();
  while (left.load() > 0) std::this_thread::yield();
  stop.store(true);
  for (uint32_t w = 0; w < kWorkers; ++w) source->wake(w);
  for (std::thread& worker : workers) worker.join();
  for (const auto& count : taken) ASSERT_EQ(count.load(), 1);
}

INSTANTIATE_TEST_SUITE_P(Types, WorkSourceTest,
                         testing::Values(models::QueueType::kMpmc, models::QueueType::kBatched,
                                         models::QueueType::kSpsc, models::QueueType::kNaive),
                         [](const testing::TestParamInfo<models::QueueType>& one) {
                           return std::string(name_of(one.param));
                         });

INSTANTIATE_TEST_SUITE_P(Types, SharedSourceTest,
                         testing::Values(models::QueueType::kMpmc, models::QueueType::kBatched,
                                         models::QueueType::kNaive),
                         [](const testing::TestParamInfo<models::QueueType>& one) {
                           return std::string(name_of(one.param));
                         });

TEST(SpscSource, GivesEachRequestToTheWorkerThatHasTheLeast) {
  const auto source = make_work_source(
      {.queue_type = models::QueueType::kSpsc, .thread_count = 3, .queue_capacity = 16}, 1);
  std::array<models::BareRequest, 12> requests;
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(source->push(0, requests[i]));
  for (uint32_t worker = 0; worker < 3; ++worker) {
    EXPECT_NE(source->try_take(worker), nullptr) << "one for each";
    EXPECT_EQ(source->try_take(worker), nullptr);
    EXPECT_EQ(source->outstanding(worker)->load(), 1u) << "taken is not complete";
  }
  // Worker 1 is through with its own, the others run theirs still.
  source->outstanding(1)->fetch_sub(1);
  ASSERT_TRUE(source->push(0, requests[3]));
  EXPECT_EQ(source->try_take(1), &requests[3]);
}

TEST(SpscSource, TakesFromAllSubmittersInTurn) {
  const auto source = make_work_source(
      {.queue_type = models::QueueType::kSpsc, .thread_count = 1, .queue_capacity = 16}, 2);
  std::array<models::BareRequest, 4> requests;
  ASSERT_TRUE(source->push(0, requests[0]));
  ASSERT_TRUE(source->push(0, requests[1]));
  ASSERT_TRUE(source->push(1, requests[2]));
  ASSERT_TRUE(source->push(1, requests[3]));
  EXPECT_EQ(source->try_take(0), &requests[0]);
  EXPECT_EQ(source->try_take(0), &requests[2]);
  EXPECT_EQ(source->try_take(0), &requests[1]);
  EXPECT_EQ(source->try_take(0), &requests[3]);
}

}  // namespace
}  // namespace lumen::engine
