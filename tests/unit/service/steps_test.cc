// Steps between binding and engine: one that answers itself, and one that shares a run among
// identical calls of two I/O threads, each with its own deadline and cancel.
#include "support/share_runs.h"
#include "unit/service/two_threads.h"

#include <lumen/base/clock.h>
#include <lumen/engine/engine.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <thread>

namespace lumen::service {
namespace {

class StepsTest : public TwoThreads {
 protected:
  void start(std::span<Step* const> steps, uint32_t queue_capacity = 256) {
    start_engine("{}", queue_capacity);
    start_threads(steps);
  }
  void start_sharing(uint32_t queue_capacity = 256) { start(share_alone, queue_capacity); }
  void wait_for(size_t of_a, size_t of_b) override {
    TwoThreads::wait_for(of_a, of_b);
    EXPECT_TRUE(share.is_empty()) << "nothing is left at the end";
  }
  void expect_reply(SlotTransport& transport, uint32_t slot, float value = kSame) {
    EXPECT_EQ(transport.code(slot), Code::kOk);
    EXPECT_THAT(transport.region[slot].reply,
                testing::ElementsAre(value + 1, value + 2, value + 3, value + 4));
    EXPECT_EQ(transport.times_encoded(slot), 1u);
  }

  ShareRuns share;
  const std::array<Step*, 1> share_alone{&share};
};

TEST_F(StepsTest, IdenticalCallsOfTwoThreadsAreOneRun) {
  start_sharing();
  hold_behind_another();
  for (uint32_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(send(*a, i));
    ASSERT_TRUE(send(*b, i));
  }
  ASSERT_TRUE(send(*b, 8, 20));
  control->release();
  wait_for(9, 9);
  EXPECT_EQ(runs(), 3u) << "the held one, the shared one, and one that is like no other";
  for (uint32_t i = 0; i < 8; ++i) {
    expect_reply(*a, i);
    expect_reply(*b, i);
  }
  expect_reply(*b, 8, 20);
  ASSERT_TRUE(send(*a, 0)) << "afterwards it runs again";
  wait_for(10, 9);
  EXPECT_EQ(runs(), 4u);
}

TEST_F(StepsTest, WhereTheLeaderFailsAllFail) {
  control->value_that_fails = kSame;
  start_sharing();
  hold_behind_another();
  ASSERT_TRUE(send(*a, 0));
  ASSERT_TRUE(send(*b, 0));
  control->release();
  wait_for(2, 1);
  EXPECT_EQ(a->code(0), Code::kInternal);
  EXPECT_EQ(b->code(0), Code::kInternal);
  EXPECT_EQ(runs(), 2u);
}

TEST_F(StepsTest, WhereTheLeaderIsLateAnotherTakesItsPlace) {
  start_sharing();
  hold_behind_another();
  ASSERT_TRUE(send(*a, 0, kSame, 1));  // late from the beginning
  ASSERT_TRUE(send(*b, 0));
  ASSERT_TRUE(send(*a, 1));
  control->release();
  wait_for(3, 1);
  EXPECT_EQ(a->code(0), Code::kDeadlineExceeded);
  expect_reply(*b, 0);
  expect_reply(*a, 1);
  EXPECT_EQ(runs(), 2u);
}

TEST_F(StepsTest, WhereTheLeaderIsCancelledAnotherTakesItsPlace) {
  start_sharing();
  hold_behind_another();
  ASSERT_TRUE(send(*a, 0));
  ASSERT_TRUE(send(*b, 0));
  ASSERT_TRUE(send(*b, 1));
  a->cancel(0);
  control->release();
  wait_for(2, 2);
  EXPECT_EQ(a->code(0), Code::kCancelled);
  expect_reply(*b, 0);
  expect_reply(*b, 1);
}

TEST_F(StepsTest, AFollowerThatIsCancelledReturnsAtOnceAndTheOthersAreServed) {
  start_sharing();
  hold_behind_another();
  ASSERT_TRUE(send(*a, 0));
  ASSERT_TRUE(send(*b, 0));
  ASSERT_TRUE(send(*b, 1));
  b->cancel(0);
  run_until([&] { return b->done.size() == 1; });  // while the model is held
  EXPECT_EQ(models->counters->total("cancelled"), 1u) << "the parked one counts too";
  EXPECT_EQ(b->wakes.load(), 1u);
  EXPECT_EQ(b->code(0), Code::kCancelled);
  EXPECT_EQ(b->times_encoded(0), 0u);
  control->release();
  wait_for(2, 2);
  EXPECT_EQ(b->wakes.load(), 2u) << "of the other, that the leader's end completed";
  expect_reply(*a, 0);
  expect_reply(*b, 1);
}

TEST_F(StepsTest, AFollowerWhoseTimeIsUpReturnsThen) {
  start_sharing();
  hold_behind_another();
  const uint64_t deadline_ns = now_ns() + 1'000'000'000;
  ASSERT_TRUE(send(*a, 0));
  ASSERT_TRUE(send(*b, 0, kSame, deadline_ns));
  EXPECT_EQ(b->dispatcher.next_ns(), deadline_ns);
  EXPECT_EQ(a->dispatcher.next_ns(), UINT64_MAX) << "what the engine has is the engine's";
  b->dispatcher.expire(deadline_ns);
  b->turn();
  EXPECT_TRUE(b->done.empty()) << "not before";
  b->dispatcher.expire(deadline_ns + 1);
  run_until([&] { return b->done.size() == 1; });
  EXPECT_EQ(b->code(0), Code::kDeadlineExceeded);
  EXPECT_EQ(b->dispatcher.next_ns(), UINT64_MAX);
  control->release();
  wait_for(2, 1);
  expect_reply(*a, 0);
}

// Was: the engine alone gave a call its default deadline, so that one that was parked had none.
TEST_F(StepsTest, AFollowerWithoutADeadlineOfItsOwnHasTheDefaultOne) {
  default_timeout_us = 3'600'000'000;
  start_sharing();
  hold_behind_another();
  ASSERT_TRUE(send(*a, 0));
  ASSERT_TRUE(send(*b, 0));
  const Call& parked = b->call(0);
  EXPECT_EQ(parked.infer.deadline_ns, parked.infer.times.parsed_ns + default_timeout_us * 1000);
  EXPECT_EQ(b->dispatcher.next_ns(), parked.infer.deadline_ns);
  b->dispatcher.expire(parked.infer.deadline_ns + 1);
  run_until([&] { return b->done.size() == 1; });
  EXPECT_EQ(b->code(0), Code::kDeadlineExceeded);
  control->release();
  wait_for(2, 1);
}

// It went on from a step, and the queue had no room then.
TEST_F(StepsTest, ACallThatGoesOnAndIsRefusedReturnsWithTheReason) {
  start_sharing(2);
  hold_behind_another();
  ASSERT_TRUE(send(*a, 0));
  ASSERT_TRUE(send(*b, 0));
  a->cancel(0);
  control->release();
  while (a->done.size() < 2) a->turn();  // `b` does not look: its call is to go on
  EXPECT_EQ(b->wakes.load(), 1u) << "it is told to";
  control->hold();
  ASSERT_TRUE(send(*a, 62, 30));
  control->wait_until_held(1);
  uint32_t more = 1;
  while (send(*a, more, 30 + static_cast<float>(more))) ++more;
  EXPECT_EQ(a->code(more), Code::kResourceExhausted);
  b->turn();
  ASSERT_EQ(b->done.size(), 1u);
  EXPECT_EQ(b->code(0), Code::kResourceExhausted);
  const telemetry::ModelCounters counts = models->model->counters();
  EXPECT_EQ(counts.total("queued"), more - 1) << "neither what runs nor what was refused";
  control->release();
  wait_for(2 + more, 1);
  EXPECT_EQ(counts.total("queued"), 0u);
}

TEST_F(StepsTest, AnEngineThatRefusesIsToldToTheStepsThatHaveLetTheCallPass) {
  start_sharing();
  engine->drain();
  EXPECT_FALSE(send(*a, 0));
  EXPECT_TRUE(share.is_empty()) << "a call like it would wait for ever";
}

// A cache that has everything: the sum of nothing.
class Answers final : public Step {
 public:
  StepOutcome before(Call& call) noexcept override {
    const auto outputs = call.scratch->allocate_array<TensorView>(1);
    outputs[0] = call.infer.inputs[0];
    outputs[0].data = static_cast<std::byte*>(call.reply_memory->allocate(16, kCacheLine));
    std::memset(outputs[0].data, 0, 16);
    call.infer.outputs = outputs;
    return StepOutcome::kDone;
  }
};

TEST_F(StepsTest, AStepMayAnswerWithoutTheEngineAndThoseBeforeItAreTold) {
  Answers answers;
  const std::array<Step*, 2> steps{&share, &answers};
  start(steps);
  ASSERT_TRUE(send(*a, 0));
  wait_for(1, 0);
  EXPECT_EQ(a->times_encoded(0), 1u);
  EXPECT_THAT(a->region[0].reply, testing::Each(0.0f));
  EXPECT_EQ(runs(), 0u);
}

// Two threads, few values, deadlines and cancels at any moment: each call returns once, with the
// reply of its own value or the reason why not.
TEST_F(StepsTest, UnderLoadEachCallReturnsOnceWithItsOwnReply) {
  start_sharing();
  const auto client = [this](SlotTransport& transport, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int round = 0; round < 200; ++round) {
      transport.done.clear();
      std::array<float, 16> values{};
      size_t sent = 0;
      for (uint32_t slot = 0; slot < values.size(); ++slot) {
        values[slot] = static_cast<float>(random() % 3);
        transport.region[slot].reply.fill(-1);
        const uint64_t deadline_ns = random() % 4 == 0 ? now_ns() + random() % 200'000 : UINT64_MAX;
        if (transport.send(slot, *models->model, values[slot], deadline_ns)) {
          ++sent;
        }
        if (random() % 4 == 0) transport.cancel(static_cast<uint32_t>(random() % (slot + 1)));
        if (random() % 4 == 0) transport.turn();
      }
      while (transport.done.size() < sent) {
        transport.dispatcher.expire(now_ns());
        transport.turn();
        std::this_thread::yield();
      }
      EXPECT_EQ(transport.done.size(), sent);
      for (uint32_t slot = 0; slot < values.size(); ++slot) {
        const Code code = transport.code(slot);
        EXPECT_TRUE(code == Code::kOk || code == Code::kCancelled ||
                    code == Code::kDeadlineExceeded)
            << static_cast<int>(code) << ", seed " << seed;
        if (code == Code::kOk) {
          EXPECT_EQ(transport.region[slot].reply[0], values[slot] + 1);
        }
      }
    }
  };
  std::thread other([&] { client(*b, 2); });
  client(*a, 1);
  other.join();
  EXPECT_TRUE(share.is_empty());
}

}  // namespace
}  // namespace lumen::service
