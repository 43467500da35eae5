// The response cache as a step over the fake backend, with two I/O threads: requests that are
// answered from it, that wait for another's run, and their fate if that fails, is late or gone.
#include "unit/service/two_threads.h"

#include <lumen/answers/response_cache.h>
#include <lumen/base/clock.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lumen::answers {
namespace {

using service::kSlots;
using service::SlotTransport;
using service::Step;
using service::TwoThreads;

constexpr std::string_view kEnabled =
    R"({"response_cache": {"enable": true, "ttl_ms": 3600000, "max_bytes": 65536}})";

class ResponseCacheTest : public TwoThreads {
 protected:
  void start(std::string_view config = kEnabled, uint32_t queue_capacity = 256,
             uint32_t workers = 1) {
    start_engine(config, queue_capacity, workers);
    ASSERT_TRUE(cache.add(*models->model).ok());
    start_threads(steps);
  }
  void TearDown() override {
    for (uint32_t i = 0; i < kSlots && a; ++i) a->let_go(i), b->let_go(i);
    EXPECT_TRUE(cache.is_idle()) << "nobody waits at the end";
    TwoThreads::TearDown();
  }
  // Sent by `a`, and run to its end.
  void ask(uint32_t slot, float value = kSame) {
    const size_t done = a->done.size();
    ASSERT_TRUE(send(*a, slot, value));
    run_until([&] { return a->done.size() > done; });
  }
  static std::vector<float> outputs(const SlotTransport& transport, uint32_t slot) {
    const TensorView& output = transport.call(slot).infer.outputs[0];
    const auto* floats = reinterpret_cast<const float*>(output.data);
    return {floats, floats + output.byte_size / sizeof(float)};
  }
  void expect_reply(const SlotTransport& transport, uint32_t slot, float value = kSame) {
    ASSERT_EQ(transport.code(slot), Code::kOk);
    EXPECT_THAT(outputs(transport, slot),
                testing::ElementsAre(value + 1, value + 2, value + 3, value + 4));
  }
  uint64_t total(telemetry::ModelCounter counter) const {
    return models->model->counters().total(counter);
  }

  ResponseCache cache{2 * kSlots};
  const std::array<Step*, 1> steps{&cache};
};

// --- hits and misses -----------------------------------------------------------------------------

TEST_F(ResponseCacheTest, TheSecondRequestOfAKindIsAnsweredWithoutARun) {
  start();
  ask(0);
  ask(1);
  ASSERT_TRUE(send(*b, 0)) << "on the other thread too";
  wait_for(2, 1);
  EXPECT_EQ(runs(), 1u);
  expect_reply(*a, 0);
  expect_reply(*a, 1);
  expect_reply(*b, 0);
  ask(2, 20);
  EXPECT_EQ(runs(), 2u) << "another input is another request";
  expect_reply(*a, 2, 20);
}

TEST_F(ResponseCacheTest, CountsAsTheProtocolHasIt) {
  start();
  ask(0);
  ask(1);
  ask(2);
  EXPECT_EQ(total("cache_miss"), 1u);
  EXPECT_EQ(total("cache_hit"), 2u);
  EXPECT_GT(total("cache_hit_ns"), 0u);
  EXPECT_GT(total("cache_miss_ns"), 0u);
  EXPECT_EQ(total("queue"), 3u) << "hits count in the queue's time";
  EXPECT_EQ(total("run"), 1u) << "and in no other's";
  EXPECT_EQ(total("inference"), 1u);
  EXPECT_EQ(total("execution"), 1u);
  EXPECT_EQ(total("cache_shared"), 0u);
  EXPECT_EQ(total("cache_not_kept"), 0u);
}

TEST_F(ResponseCacheTest, AModelThatDoesNotWantItRunsEachRequest) {
  start("{}");
  ask(0);
  ask(1);
  EXPECT_EQ(runs(), 2u);
  EXPECT_EQ(total("cache_hit") + total("cache_miss"), 0u);
}

TEST_F(ResponseCacheTest, ARequestThatWantsNoneIsNeitherAnsweredFromItNorKept) {
  start();
  a->wishes.is_off = true;
  ask(0);
  ask(1);
  EXPECT_EQ(runs(), 2u);
  a->wishes.is_off = false;
  ask(2);
  EXPECT_EQ(runs(), 3u) << "nothing was kept";
  a->wishes.is_off = true;
  ask(3);
  EXPECT_EQ(runs(), 4u) << "what is kept is not used";
  EXPECT_EQ(total("cache_miss"), 1u);
  EXPECT_EQ(total("cache_hit"), 0u);
}

TEST_F(ResponseCacheTest, OneWhoseInputItsClientCanStillChangeIsNeitherAnsweredFromItNorKept) {
  start();
  a->wishes.has_shared_input = true;
  ask(0);
  ask(1);
  EXPECT_EQ(runs(), 2u);
  a->wishes.has_shared_input = false;
  ask(2);
  EXPECT_EQ(runs(), 3u) << "nothing was kept";
  EXPECT_EQ(total("cache_miss"), 1u);
}

TEST_F(ResponseCacheTest, ARequestsTtlShortensOnly) {
  start(R"({"response_cache": {"enable": true, "ttl_ms": 1, "max_bytes": 65536}})");
  const auto wait_ms = [](uint64_t ms) {
    const uint64_t until = now_ns() + ms * 1'000'000;
    while (now_ns() < until) std::this_thread::yield();
  };
  a->wishes.ttl_ms = 3'600'000;
  ask(0);
  wait_ms(5);
  ask(1);
  EXPECT_EQ(runs(), 2u) << "the model's own is shorter";
}

TEST_F(ResponseCacheTest, ARequestTakesNoAnswerThatIsOlderThanItsTtl) {
  start();
  ask(0);
  const uint64_t until = now_ns() + 5'000'000;
  while (now_ns() < until) std::this_thread::yield();
  a->wishes.ttl_ms = 1;
  ask(1);
  EXPECT_EQ(runs(), 2u);
  a->wishes.ttl_ms = std::nullopt;
  // Was counted from before ask(1), which took longer on a slow machine than the wait: its answer
  // still lived.
  const uint64_t until_it_died = now_ns() + 5'000'000;
  while (now_ns() < until_it_died) std::this_thread::yield();
  ask(2);
  EXPECT_EQ(runs(), 3u) << "what that one left lived no longer";
}

TEST_F(ResponseCacheTest, OnlyGoodAnswersAreKept) {
  control->value_that_fails = kSame;
  start();
  ask(0);
  ask(1);
  EXPECT_EQ(a->code(0), Code::kInternal);
  EXPECT_EQ(a->code(1), Code::kInternal);
  EXPECT_EQ(runs(), 2u);
}

// A client's writes into its memory once its reply is out change nobody's answer.
TEST_F(ResponseCacheTest, AClientThatRewritesItsMemoryPoisonsNoAnswer) {
  start();
  hold_behind_another();
  ASSERT_TRUE(send(*a, 0));
  a->region[0].input.fill(77);  // after it was taken, before it is run
  control->release();
  wait_for(2, 0);
  expect_reply(*a, 0);
  a->region[0].reply.fill(99);
  ASSERT_TRUE(send(*b, 0));
  wait_for(2, 1);
  expect_reply(*b, 0);
  ask(1, 77);
  EXPECT_EQ(runs(), 3u) << "the rewritten input was never a key";
}

TEST_F(ResponseCacheTest, AnotherLoadOfTheModelBeginsEmpty) {
  start();
  ask(0);
  a->let_go(0);
  cache.remove(*models->model);
  ask(1);
  EXPECT_EQ(runs(), 2u) << "without one";
  ASSERT_TRUE(cache.add(*models->model).ok());
  ask(2);
  EXPECT_EQ(runs(), 3u);
  ask(3);
  EXPECT_EQ(runs(), 3u);
}

// --- full stores, and slow readers
// -----------------------------------------------------------------

TEST_F(ResponseCacheTest, AReplyThatIsStillReadStaysWhole) {
  start();
  ask(0);
  ask(1);
  ASSERT_EQ(total("cache_hit"), 1u);
  for (uint32_t i = 0; i < 400; ++i) ask(2, 100 + static_cast<float>(i));
  expect_reply(*a, 1);
  ask(3);
  const uint64_t before = runs();
  expect_reply(*a, 1);
  a->let_go(1);
  ask(4);
  EXPECT_EQ(runs(), before);
}

TEST_F(ResponseCacheTest, HoldsNoMoreThanItsBytesHoweverManyAnswersThereAre) {
  start();
  for (uint32_t i = 0; i < 500; ++i) {
    ask(i % 8, static_cast<float>(i));
    const auto usage = cache.usage(*models->model);
    ASSERT_TRUE(usage);
    ASSERT_LE(usage->bytes, usage->max_bytes);
  }
  EXPECT_EQ(cache.usage(*models->model)->max_bytes, 65536u);
  EXPECT_EQ(runs(), 500u);
  ask(9, 499);
  EXPECT_EQ(runs(), 500u) << "the newest is there";
}

// --- several at once -----------------------------------------------------------------------------

TEST_F(ResponseCacheTest, IdenticalRequestsOfTwoThreadsAreOneRun) {
  start();
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
  EXPECT_EQ(total("cache_miss"), 2u);
  EXPECT_EQ(total("cache_hit"), 15u);
  EXPECT_EQ(total("cache_shared"), 15u);
}

TEST_F(ResponseCacheTest, WhereTheLeadersRunFailsEachOtherRunsForItself) {
  control->value_that_fails = kSame;
  start();
  hold_behind_another();
  for (uint32_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(send(*a, i));
    ASSERT_TRUE(send(*b, i));
  }
  control->release();
  wait_for(3, 2);
  EXPECT_EQ(runs(), 5u) << "none is told of a failure that was not its own";
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(a->code(i), Code::kInternal);
    EXPECT_EQ(b->code(i), Code::kInternal);
  }
}

// Was: each led in its turn, so that N requests with a run that fails took N runs one after the
// other.
TEST_F(ResponseCacheTest, WhereTheLeadersRunFailsTheOthersRunAtOnceOnAllWorkers) {
  control->value_that_fails = kSame;
  start(kEnabled, 256, 2);
  control->hold();
  ASSERT_TRUE(send(*a, 0));
  control->wait_until_held(1);
  ASSERT_TRUE(send(*b, 0));
  ASSERT_TRUE(send(*b, 1));
  control->release();
  while (a->done.empty()) a->turn();
  control->hold();
  b->turn();
  EXPECT_TRUE(control->wait_until_held(2, 10'000'000'000)) << "one of them waits for the other";
  control->release();
  wait_for(1, 2);
  EXPECT_EQ(b->code(0), Code::kInternal);
  EXPECT_EQ(b->code(1), Code::kInternal);
}

TEST_F(ResponseCacheTest, WhereTheLeaderIsLateAnotherTakesItsPlace) {
  start();
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

TEST_F(ResponseCacheTest, WhereTheLeadersClientIsGoneAnotherTakesItsPlace) {
  start();
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
  EXPECT_EQ(runs(), 2u);
}

TEST_F(ResponseCacheTest, OneThatWaitsAndIsCancelledReturnsAtOnceAndTheOthersAreServed) {
  start();
  hold_behind_another();
  ASSERT_TRUE(send(*a, 0));
  ASSERT_TRUE(send(*b, 0));
  ASSERT_TRUE(send(*b, 1));
  b->cancel(0);
  run_until([&] { return b->done.size() == 1; });  // while the model is held
  EXPECT_EQ(b->code(0), Code::kCancelled);
  control->release();
  wait_for(2, 2);
  expect_reply(*a, 0);
  expect_reply(*b, 1);
}

TEST_F(ResponseCacheTest, OneThatWaitsReturnsWhenItsOwnTimeIsUp) {
  start();
  hold_behind_another();
  const uint64_t deadline_ns = now_ns() + 1'000'000'000;
  ASSERT_TRUE(send(*a, 0));
  ASSERT_TRUE(send(*b, 0, kSame, deadline_ns));
  EXPECT_EQ(b->dispatcher.next_ns(), deadline_ns);
  b->dispatcher.expire(deadline_ns + 1);
  run_until([&] { return b->done.size() == 1; });
  EXPECT_EQ(b->code(0), Code::kDeadlineExceeded);
  control->release();
  wait_for(2, 1);
  expect_reply(*a, 0);
}

// The leader finds the queue full when it goes on from a step before; the others each hear for
// themselves.
TEST_F(ResponseCacheTest, WhereTheQueueIsFullEachIsRefusedForItself) {
  start(kEnabled, 2);
  hold_behind_another();
  ASSERT_TRUE(send(*a, 0));
  ASSERT_TRUE(send(*b, 0));
  ASSERT_TRUE(send(*b, 1));
  a->cancel(0);
  control->release();
  while (a->done.size() < 2) a->turn();  // `b` does not look: one of its calls is to go on
  control->hold();
  ASSERT_TRUE(send(*a, 62, 30));
  control->wait_until_held(1);
  uint32_t more = 1;
  while (send(*a, more, 30 + static_cast<float>(more))) ++more;
  EXPECT_EQ(a->code(more), Code::kResourceExhausted);
  while (b->done.size() < 2) b->turn();
  EXPECT_EQ(b->code(0), Code::kResourceExhausted);
  EXPECT_EQ(b->code(1), Code::kResourceExhausted);
  control->release();
  wait_for(2 + more, 2);
}

TEST_F(ResponseCacheTest, AnEngineThatIsClosedLeavesNobodyWaiting) {
  start();
  hold_behind_another();
  ASSERT_TRUE(send(*a, 0));
  ASSERT_TRUE(send(*b, 0));
  a->cancel(0);
  std::thread drains([&] { engine->drain(); });
  control->release();
  wait_for(2, 1);
  drains.join();
  EXPECT_TRUE(b->code(0) == Code::kUnavailable || b->code(0) == Code::kOk);
  EXPECT_FALSE(send(*a, 0, 50));
}

// Clients that read slowly hold all there is, and an answer that is not stored still goes to all
// that wait.
TEST_F(ResponseCacheTest, ThoseThatWaitGetAnAnswerThatIsNotStored) {
  start();
  constexpr uint32_t kStored = 65536 / 1024;  // slots
  for (uint32_t i = 0; i < kStored; ++i) {
    SlotTransport& reader = i < 56 ? *a : *b;
    const uint32_t slot = i < 56 ? i : i - 56;
    ask(62, 1000 + static_cast<float>(i));
    const size_t done = reader.done.size();
    ASSERT_TRUE(send(reader, slot, 1000 + static_cast<float>(i)));
    run_until([&] { return reader.done.size() > done; });
  }
  ASSERT_EQ(total("cache_hit"), kStored) << "each is held by its reader";
  ASSERT_EQ(total("cache_not_kept"), 0u);
  hold_behind_another();
  ASSERT_TRUE(send(*a, 61));
  ASSERT_TRUE(send(*b, 20));
  control->release();
  const size_t before = a->done.size();
  run_until([&] { return a->done.size() >= before + 2; });
  run_until([&] { return b->code(20) == Code::kOk && b->done.back() == 20; });
  expect_reply(*b, 20);
  EXPECT_EQ(total("cache_not_kept"), 1u);
  for (uint32_t i = 0; i < 56; ++i) expect_reply(*a, i, 1000 + static_cast<float>(i));
  for (uint32_t i = 0; i < 56; ++i) a->let_go(i);
  ask(61);
  const uint64_t before_hit = total("cache_hit");
  ask(60);
  EXPECT_EQ(total("cache_hit"), before_hit + 1) << "there is room again";
}

// Was: a call found the answer at its second look, as another's run had just ended, had no memory
// for the list of its outputs, and stored an answer without outputs for all that came later.
TEST_F(ResponseCacheTest, AnAnswerThatHasNoRoomInACallsMemoryIsNotStoredAsOneWithoutOutputs) {
  start();
  ask(0);
  // The least with which a call still looks into the store.
  a->scratch_left = 0;
  const auto fails_at_its_hit = [&] {
    const uint64_t hits = total("cache_hit");
    ask(0);
    return total("cache_hit") > hits && a->code(0) == Code::kTooLarge;
  };
  while (a->scratch_left < 8192 && !fails_at_its_hit()) a->scratch_left += 8;
  ASSERT_LT(a->scratch_left, 8192u);
  uint64_t failed = 0;
  for (uint32_t round = 1; round <= 500; ++round) {
    const float value = 1000 + static_cast<float>(round);
    a->done.clear();
    b->done.clear();
    ASSERT_TRUE(send(*b, 0, value));
    // Slot after slot, while the run of `b` ends: some look between its end and its flight's.
    uint32_t sent = 0;
    while (b->done.empty() && sent < kSlots) {
      if (!a->send(sent++, *models->model, value)) --sent;
      b->turn();
    }
    a->turn();
    run_until([&] { return a->done.size() >= sent && b->done.size() == 1; });
    for (uint32_t slot = 0; slot < sent; ++slot) failed += a->code(slot) != Code::kOk ? 1 : 0;
    b->let_go(0);
    ASSERT_TRUE(send(*b, 1, value));
    run_until([&] { return b->done.size() == 2; });
    ASSERT_EQ(b->call(1).infer.outputs.size(), 1u) << "round " << round;
    expect_reply(*b, 1, value);
    b->let_go(1);
  }
  EXPECT_GT(failed, 0u);
}

// Two threads, few values, deadlines, cancels and slow readers at any moment: each call returns
// once, with the reply of its own value or the reason why not.
TEST_F(ResponseCacheTest, UnderLoadEachCallReturnsOnceWithItsOwnReply) {
  start();
  const auto client = [this](SlotTransport& transport, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int round = 0; round < 200; ++round) {
      transport.done.clear();
      std::array<float, 16> values{};
      size_t sent = 0;
      for (uint32_t slot = 0; slot < values.size(); ++slot) {
        values[slot] = static_cast<float>(random() % 100 < 70 ? random() % 3 : random() % 300);
        transport.wishes.is_off = random() % 16 == 0;
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
          EXPECT_EQ(outputs(transport, slot)[0], values[slot] + 1);
        }
        if (random() % 2 == 0) transport.let_go(slot);
      }
    }
  };
  std::thread other([&] { client(*b, 2); });
  client(*a, 1);
  other.join();
  EXPECT_GT(total("cache_hit"), 0u);
}

}  // namespace
}  // namespace lumen::answers
