// ModelQueues: a bound for each model, and the next model by each policy. One thread; the races are
// conformance/model_queue_source_test.cc's and stress's. Memory: the heap. Errors: by gtest.
#include "engine/model_queues.h"

#include "support/bare_request.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>

namespace lumen::engine {
namespace {

constexpr uint64_t kUs = 1'000;
constexpr uint64_t kMs = 1'000'000;
constexpr uint32_t kWorkers = 3;

class ModelQueuesTest : public testing::Test {
 protected:
  void make(Policy policy, size_t capacity = 64) {
    queues = std::make_unique<ModelQueues>(policy, capacity, kWorkers);
    for (uint32_t model = 0; model < 3; ++model) queues->add(models::bare_model(model), {});
  }
  models::BareRequest* push(uint32_t model, uint64_t expected_ns, uint64_t parsed_ns = 1,
                            uint64_t deadline_ns = UINT64_MAX) {
    models::BareRequest& request = requests.emplace_back(model);
    request.expected_ns = expected_ns;
    request.times.parsed_ns = parsed_ns;
    request.deadline_ns = deadline_ns;
    const bool pushed = queues->push(request, marks);
    queues->announce(marks);
    return pushed ? &request : nullptr;
  }
  // Takes `count` and says how many of each model; as if each had taken its expected time.
  std::map<uint32_t, int> take(int count) {
    std::map<uint32_t, int> taken;
    for (int i = 0; i < count; ++i) {
      const models::InferRequest* request = queues->try_pop(0);
      if (request == nullptr) break;
      ++taken[request->model->index()];
    }
    return taken;
  }

  std::deque<models::BareRequest> requests;
  std::unique_ptr<ModelQueues> queues;
  ModelQueues::Pushed marks;
};

TEST_F(ModelQueuesTest, AFullQueueRefusesOnlyItsOwnModel) {
  make(Policy::kFair, 4);
  for (int i = 0; i < 4; ++i) ASSERT_NE(push(0, kUs), nullptr);
  EXPECT_FALSE(queues->has_room(models::bare_model(0)));
  EXPECT_EQ(push(0, kUs), nullptr);
  EXPECT_TRUE(queues->has_room(models::bare_model(1)));
  EXPECT_NE(push(1, kUs), nullptr);
  ASSERT_NE(queues->try_pop(0), nullptr);
  ASSERT_NE(queues->try_pop(0), nullptr);
  EXPECT_NE(push(0, kUs), nullptr) << "there is room again";
}

// The property: with one worker a light request waits for the run that has begun, and for
// no other.
TEST_F(ModelQueuesTest, FairTakesALightRequestBeforeAllHeavyOnesThatWait) {
  make(Policy::kFair);
  for (int i = 0; i < 8; ++i) ASSERT_NE(push(0, 5 * kMs), nullptr);
  ASSERT_EQ(queues->try_pop(0)->model->index(), 0u) << "it runs";
  const models::InferRequest* light = push(1, 2 * kUs);
  EXPECT_EQ(queues->try_pop(0), light);
}

TEST_F(ModelQueuesTest, FairTakesTheLighterOfTwoModelsThatHaveHadNothing) {
  make(Policy::kFair);
  (void)push(0, 5 * kMs);
  (void)push(1, 300 * kUs);
  ASSERT_EQ(take(2).size(), 2u);
  // Both are known now; neither has any claim on earlier time.
  const models::InferRequest* heavy = push(0, 5 * kMs);
  (void)heavy;
  const models::InferRequest* light = push(1, 300 * kUs);
  EXPECT_EQ(queues->try_pop(0), light);
}

TEST_F(ModelQueuesTest, FairGivesEachModelTheSameTimeForRequestsOfAnyLength) {
  make(Policy::kFair, 1024);
  for (int i = 0; i < 1000; ++i) (void)push(0, 300 * kUs);
  for (int i = 0; i < 100; ++i) (void)push(1, 3 * kMs);
  const auto taken = take(550);
  EXPECT_NEAR(taken.at(0), 500, 5);
  EXPECT_NEAR(taken.at(1), 50, 1);
}

TEST_F(ModelQueuesTest, FairGivesTimeByWeight) {
  make(Policy::kFair, 1024);
  queues->shares().reset(0, 3, kMs);
  for (int i = 0; i < 500; ++i) (void)push(0, kMs);
  for (int i = 0; i < 500; ++i) (void)push(1, kMs);
  const auto taken = take(400);
  EXPECT_NEAR(taken.at(0), 300, 3);
}

TEST_F(ModelQueuesTest, FairGoesByMeasuredTimesAndNotByExpectedOnes) {
  make(Policy::kFair, 1024);
  for (int i = 0; i < 900; ++i) (void)push(0, kMs);  // expected alike
  for (int i = 0; i < 900; ++i) (void)push(1, kMs);
  std::map<uint32_t, uint64_t> had_ns;
  for (int i = 0; i < 600; ++i) {
    const models::InferRequest* request = queues->try_pop(0);
    ASSERT_NE(request, nullptr);
    const uint32_t model = request->model->index();
    const uint64_t took_ns = model == 0 ? 4 * kMs : kMs;
    queues->shares().settle(model, took_ns, request->share_ns);
    had_ns[model] += took_ns;
  }
  EXPECT_NEAR(static_cast<double>(had_ns[0]) / static_cast<double>(had_ns[1]), 1.0, 0.05);
}

// Otherwise it would take all workers for as long as it had been idle.
TEST_F(ModelQueuesTest, FairGivesNoCreditForTimeInWhichAModelHadNothingToDo) {
  make(Policy::kFair, 1024);
  for (int i = 0; i < 600; ++i) (void)push(0, kMs);
  (void)take(500);
  for (int i = 0; i < 100; ++i) (void)push(1, kMs);
  const auto taken = take(100);
  EXPECT_NEAR(taken.at(1), 50, 2);
}

// A model whose runs happen on I/O threads as well has less of the workers' time.
TEST_F(ModelQueuesTest, FairCountsRunsOfAModelElsewhere) {
  make(Policy::kFair, 1024);
  for (int i = 0; i < 100; ++i) (void)push(0, kMs);
  for (int i = 0; i < 100; ++i) (void)push(1, kMs);
  (void)take(20);
  queues->shares().settle(1, 10 * kMs, 0);
  const auto taken = take(30);
  EXPECT_NEAR(taken.at(0), 20, 1);
  EXPECT_NEAR(taken.at(1), 10, 1);
}

// Requests that are run in one call are one run: it does not take from the others the time that
// they are behind it.
TEST_F(ModelQueuesTest, FairGivesAModelThatIsRunInBatchesNoMoreThanOthers) {
  make(Policy::kFair, 1024);
  for (int i = 0; i < 512; ++i) (void)push(0, kMs);
  for (int i = 0; i < 512; ++i) (void)push(1, kMs);
  std::map<uint32_t, int> taken;
  for (int i = 0; i < 200; ++i) {
    const models::InferRequest* request = queues->try_pop(0);
    ASSERT_NE(request, nullptr);
    ++taken[request->model->index()];
    for (int more = 0; request->model->index() == 0 && more < 15; ++more) {
      if (queues->try_pop_like(*request) != nullptr) ++taken[0];
    }
  }
  EXPECT_NEAR(taken.at(0), taken.at(1), 16);
}

TEST_F(ModelQueuesTest, FifoTakesTheOldestOfAllModels) {
  make(Policy::kFifo);
  const models::InferRequest* second = push(0, kMs, 20);
  const models::InferRequest* first = push(1, kMs, 10);
  const models::InferRequest* fourth = push(1, kMs, 40);
  const models::InferRequest* third = push(2, kMs, 30);
  EXPECT_EQ(queues->try_pop(0), first);
  EXPECT_EQ(queues->try_pop(0), second);
  EXPECT_EQ(queues->try_pop(0), third);
  EXPECT_EQ(queues->try_pop(0), fourth);
  EXPECT_EQ(queues->try_pop(0), nullptr);
}

TEST_F(ModelQueuesTest, DeadlineTakesTheEarliestAndThoseWithoutOneLast) {
  make(Policy::kDeadline);
  const models::InferRequest* never = push(0, kMs, 1);
  const models::InferRequest* late = push(0, kMs, 1, 500 * kMs);
  const models::InferRequest* soon = push(0, kMs, 1, 3 * kMs);
  const models::InferRequest* sooner = push(1, kMs, 1, 2 * kMs);
  const models::InferRequest* later = push(1, kMs, 1, 40 * kMs);
  EXPECT_EQ(queues->try_pop(0), sooner);
  EXPECT_EQ(queues->try_pop(0), soon) << "of one model too, though it came last";
  EXPECT_EQ(queues->try_pop(0), later);
  EXPECT_EQ(queues->try_pop(0), late);
  EXPECT_EQ(queues->try_pop(0), never);
}

// A flood of one priority, or of requests that may wait for long, leaves room for the others of its
// model.
TEST_F(ModelQueuesTest, EachPriorityAndDeadlineClassHasABoundOfItsOwn) {
  make(Policy::kDeadline, 2);
  for (int i = 0; i < 2; ++i) ASSERT_NE(push(0, kMs, 1), nullptr);
  EXPECT_EQ(push(0, kMs, 1), nullptr);
  EXPECT_TRUE(queues->has_room(models::bare_model(0)));
  for (int i = 0; i < 2; ++i) ASSERT_NE(push(0, kMs, 1, 2 * kMs), nullptr);
  EXPECT_EQ(push(0, kMs, 1, 2 * kMs), nullptr);
  models::BareRequest urgent;
  urgent.priority = 1;
  urgent.times.parsed_ns = 1;
  EXPECT_TRUE(queues->push(urgent, marks));
}

TEST_F(ModelQueuesTest, ARequestThatJoinsACallIsOfTheSameModel) {
  make(Policy::kFair);
  const models::InferRequest* first = push(0, kMs);
  const models::InferRequest* second = push(0, kMs);
  (void)push(1, kUs);
  ASSERT_EQ(queues->try_pop_like(*first), first);
  EXPECT_EQ(queues->try_pop_like(*first), second);
  EXPECT_EQ(queues->try_pop_like(*first), nullptr);
  EXPECT_EQ(queues->try_pop(0)->model->index(), 1u);
}

TEST_F(ModelQueuesTest, ATidiedQueueIsFoundAgainOnceARequestComes) {
  make(Policy::kFair);
  (void)push(0, kMs);
  (void)push(1, kMs);
  ASSERT_NE(queues->try_pop_like(models::BareRequest(0)), nullptr);
  (void)queues->tidy(0);
  EXPECT_FALSE(queues->was_empty(0)) << "the other model's";
  EXPECT_EQ(queues->size_was(), 1u);
  ASSERT_NE(queues->try_pop(0), nullptr);
  (void)queues->tidy(0);
  EXPECT_TRUE(queues->was_empty(0));
  const models::InferRequest* next = push(0, kMs);
  EXPECT_EQ(queues->try_pop(0), next);
}

// A submitter may have left between push() and announce(): the engine changed its configuration.
TEST_F(ModelQueuesTest, NothingIsLeftBehindOfASubmitterThatDoesNotAnnounce) {
  make(Policy::kFair);
  models::BareRequest request(2);
  ASSERT_TRUE(queues->push(request, marks));
  queues->announce_all();
  EXPECT_FALSE(queues->was_empty(0));
  EXPECT_EQ(queues->try_pop(0), &request);
}

TEST_F(ModelQueuesTest, ALaneIsKeptForTheNextModelWithItsIndex) {
  make(Policy::kFair, 2);
  for (int change = 0; change < 100; ++change) {
    queues->add(models::bare_model(1), {});
    ASSERT_NE(push(1, kUs), nullptr);
    ASSERT_NE(queues->try_pop(0), nullptr);
  }
}

TEST_F(ModelQueuesTest, APriorityIsEmptyBeforeTheNextIsLookedAt) {
  for (const Policy policy : {Policy::kFair, Policy::kDeadline, Policy::kFifo}) {
    make(policy);
    std::array<models::BareRequest, 4> mine{models::BareRequest(0), models::BareRequest(0),
                                            models::BareRequest(1), models::BareRequest(2)};
    mine[0].priority = 3;
    mine[1].priority = 1;
    mine[2].priority = 0;  // as the model's: 2
    mine[3].priority = 1;
    uint64_t time = 0;
    for (models::BareRequest& request : mine) {
      request.times.parsed_ns = ++time;
      request.deadline_ns = kMs - time;
      request.expected_ns = kUs * time;
      ASSERT_TRUE(queues->push(request, marks));
    }
    queues->announce(marks);
    const std::set<models::InferRequest*> first = {queues->try_pop(0), queues->try_pop(0)};
    EXPECT_EQ(first, (std::set<models::InferRequest*>{&mine[1], &mine[3]})) << name_of(policy);
    EXPECT_EQ(queues->try_pop(0), &mine[2]) << name_of(policy);
    EXPECT_EQ(queues->try_pop(0), &mine[0]) << name_of(policy);
  }
}

TEST_F(ModelQueuesTest, APriorityBelowTheLowestIsTheLowest) {
  make(Policy::kFifo);
  models::BareRequest first;
  models::BareRequest second;
  first.priority = 4'000'000'000u;
  second.priority = models::kPriorities;
  ASSERT_TRUE(queues->push(first, marks));
  ASSERT_TRUE(queues->push(second, marks));
  EXPECT_EQ(queues->try_pop(0), &first);
  EXPECT_EQ(queues->try_pop(0), &second);
}

TEST_F(ModelQueuesTest, RequestsForSomeWorkersAreSeenByThemAlone) {
  make(Policy::kFair);
  queues->add(models::bare_model(0), std::array<uint32_t, 2>{0, 2});
  const models::InferRequest* pinned = push(0, kMs);
  EXPECT_EQ(marks.for_any, 0u);
  EXPECT_TRUE(marks.has_some);
  EXPECT_EQ(marks.some[0], 0b101u);
  EXPECT_EQ(queues->size_was(), 0u) << "nobody else is woken for it";
  EXPECT_TRUE(queues->was_empty(1));
  EXPECT_FALSE(queues->was_empty(0));
  EXPECT_EQ(queues->try_pop(1), nullptr);
  EXPECT_EQ(queues->try_pop(2), pinned);
}

// Had it cleared the bit for a moment, a worker that may take the request could have looked then
// and gone to sleep.
TEST_F(ModelQueuesTest, AWorkerTidiesNoQueueThatItMayNotTakeFrom) {
  make(Policy::kFair);
  queues->add(models::bare_model(0), std::array<uint32_t, 1>{1});
  ASSERT_NE(push(0, kMs), nullptr);
  ASSERT_NE(queues->try_pop(1), nullptr);
  (void)queues->tidy(0);
  ModelQueues::Pushed none;
  models::BareRequest unannounced;
  ASSERT_TRUE(queues->push(unannounced, none));
  EXPECT_EQ(queues->try_pop(1), &unannounced);
}

TEST_F(ModelQueuesTest, TheNextModelOfAnIndexMayBeForOtherWorkers) {
  make(Policy::kFair);
  queues->add(models::bare_model(0), std::array<uint32_t, 1>{1});
  queues->add(models::bare_model(0), std::array<uint32_t, 1>{2});
  ASSERT_NE(push(0, kMs), nullptr);
  EXPECT_EQ(queues->try_pop(1), nullptr);
  EXPECT_NE(queues->try_pop(2), nullptr);
  queues->add(models::bare_model(0), {});
  ASSERT_NE(push(0, kMs), nullptr);
  EXPECT_NE(queues->try_pop(0), nullptr);
}

// Random histories of one heavy model with work all the time and four light ones with a client
// each, on one to three workers, with weights and runs that take more or less than was expected.
TEST_F(ModelQueuesTest, InAnyHistoryALightRequestWaitsForOneMoreHeavyRunAtMost) {
  constexpr uint32_t kHeavy = 4;
  struct Running {
    models::BareRequest* request = nullptr;
    uint64_t expected_ns = 0;
  };
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](uint32_t end) { return static_cast<uint32_t>(random() % end); };
    ModelQueues all(Policy::kFair, 64, kWorkers);
    for (uint32_t model = 0; model <= kHeavy; ++model) {
      all.add(models::bare_model(model), {});
      all.shares().reset(model, model == kHeavy ? 1 : 1 + below(5), 0);
    }
    std::deque<models::BareRequest> made;
    std::array<const models::BareRequest*, kHeavy> waiting{};
    std::array<int, kHeavy> heavy_before{};
    std::vector<Running> workers(1 + below(kWorkers));
    ModelQueues::Pushed pushed;
    const auto push_one = [&](uint32_t model, uint64_t expected_ns) {
      models::BareRequest& request = made.emplace_back(model);
      request.expected_ns = expected_ns;
      request.times.parsed_ns = made.size();
      ASSERT_TRUE(all.push(request, pushed));
      all.announce(pushed);
    };
    for (int i = 0; i < 8; ++i) push_one(kHeavy, 5 * kMs);
    for (int step = 0; step < 2000; ++step) {
      const uint32_t light = below(kHeavy);
      if (below(2) == 0 && waiting[light] == nullptr) {
        push_one(light, (1 + below(50)) * kUs);
        waiting[light] = &made.back();
        heavy_before[light] = 0;
      }
      Running& worker = workers[below(static_cast<uint32_t>(workers.size()))];
      if (worker.request != nullptr) {
        const uint32_t model = worker.request->model->index();
        all.shares().settle(model, worker.expected_ns * (50 + below(100)) / 100,
                            worker.request->share_ns);
        worker.request = nullptr;
        if (model == kHeavy) push_one(kHeavy, 5 * kMs);
        if (model != kHeavy) waiting[model] = nullptr;
        continue;
      }
      auto* const taken = static_cast<models::BareRequest*>(all.try_pop(0));
      if (taken == nullptr) continue;
      worker = {taken, taken->expected_ns};
      for (uint32_t model = 0; taken->model->index() == kHeavy && model < kHeavy; ++model) {
        const bool still_waits = waiting[model] != nullptr && waiting[model]->share_ns == 0;
        heavy_before[model] += still_waits ? 1 : 0;
        ASSERT_LE(heavy_before[model], 1) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace lumen::engine
