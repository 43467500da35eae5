// Sequences as a step over the fake backend, with two I/O threads. The model's output is the sum of
// the inputs of its sequence so far, and 1 for each request.
#include <lumen/sequences/sequences.h>

#include <lumen/base/clock.h>

#include "unit/service/two_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace lumen::sequences {
namespace {

using service::kSlots;
using service::SlotTransport;
using service::Step;
using service::TwoThreads;
using testing::HasSubstr;

constexpr std::string_view kConfig =
    R"({"sequences": {"states": [{"input": "h", "output": "h_out"}], "most": 4}})";

class SequencesTest : public TwoThreads {
 protected:
  SequencesTest() { control->models_with_a_state.insert("m"); }
  void start(std::string_view config = kConfig, uint32_t workers = 1) {
    start_engine(config, 256, workers);
    sequences.emplace(2 * kSlots, *models->counters);
    ASSERT_TRUE(sequences->add(*models->model).ok());
    steps[0] = &*sequences;
    start_threads(steps);
  }
  void start_batched() {
    control->cost_ns = [](uint64_t) -> uint64_t { return 200'000; };
    models.emplace(control, kConfig);
    engine::EngineOptions options;
    options.config = {.queue_type = models::QueueType::kBatched,
                      .thread_count = 1,
                      .batch_size = 4,
                      .queue_capacity = 256};
    options.submitter_count = 2;
    options.pin_threads.mode = PinThreads::Mode::kOff;
    engine = std::move(engine::Engine::create(options, *models->repository).value());
    sequences.emplace(2 * kSlots, *models->counters);
    ASSERT_TRUE(sequences->add(*models->model).ok());
    steps[0] = &*sequences;
    start_threads(steps);
  }
  void TearDown() override {
    if (sequences) {
      EXPECT_TRUE(sequences->is_idle()) << "no request waits at the end";
    }
    TwoThreads::TearDown();
  }

  struct Place {
    uint64_t sequence = 1;
    bool starts = false;
    bool ends = false;
  };
  void put(SlotTransport& transport, uint32_t slot, float value, const Place& place,
           uint64_t deadline_ns = UINT64_MAX) {
    transport.sequence = {
        .number = place.sequence, .text = {}, .starts = place.starts, .ends = place.ends};
    ASSERT_TRUE(send(transport, slot, value, deadline_ns));
  }
  // Sent by `a` in slot 0, and run to its end.
  float ask(float value, const Place& place) {
    put(*a, 0, value, place);
    return take();
  }
  float take() {
    const size_t done = a->done.size();
    run_until([&] { return a->done.size() > done; });
    EXPECT_EQ(a->code(0), Code::kOk) << a->call(0).infer.status.message();
    return a->region[0].reply[0];
  }
  std::string refusal(const Place& place, Code code = Code::kInvalidArgument) {
    const size_t done = a->done.size();
    put(*a, 1, 1, place);
    run_until([&] { return a->done.size() > done; });
    EXPECT_EQ(a->code(1), code);
    return std::string(a->call(1).infer.status.message());
  }
  // A request of `a` that fails, with this value.
  void fail(float value, const Place& place) {
    const size_t done = a->done.size();
    put(*a, 1, value, place);
    run_until([&] { return a->done.size() > done; });
    EXPECT_EQ(a->code(1), Code::kInternal);
  }
  // Nothing runs until release(), and submitted requests wait behind this one, of `a`.
  void hold_with_another() {
    control->hold();
    put(*a, 63, -1, {.sequence = 4, .starts = true});
    a->turn();
    control->wait_until_held(1);
  }
  Sequences::Usage usage() const { return sequences->usage(*models->model).value(); }

  std::optional<Sequences> sequences;
  std::array<Step*, 1> steps{};
};

// --- states --------------------------------------------------------------------------------------

TEST_F(SequencesTest, ARequestSeesTheStateThatTheOneBeforeLeft) {
  start();
  EXPECT_EQ(ask(10, {.sequence = 1, .starts = true}), 11);
  EXPECT_EQ(ask(100, {.sequence = 2, .starts = true}), 101) << "of its own sequence alone";
  EXPECT_EQ(ask(10, {.sequence = 1}), 22);
  EXPECT_EQ(ask(100, {.sequence = 2}), 202);
  EXPECT_EQ(usage().live, 2u);
  EXPECT_EQ(usage().started, 2u);
  EXPECT_EQ(usage().state_bytes, 2 * 64u) << "16 bytes, aligned";
  EXPECT_EQ(models->counters->live_sequences(models->model->index()).load(), 2u);
}

TEST_F(SequencesTest, AStartBeginsWithZerosAlsoWhereTheSequenceIsLive) {
  start();
  EXPECT_EQ(ask(5, {.starts = true}), 6);
  EXPECT_EQ(ask(5, {}), 12);
  EXPECT_EQ(ask(5, {.starts = true}), 6);
  EXPECT_EQ(usage().live, 1u);
}

TEST_F(SequencesTest, AnEndedSequenceIsGoneAndLeavesNothingToTheNext) {
  start();
  EXPECT_EQ(ask(5, {.starts = true}), 6);
  EXPECT_EQ(ask(5, {.ends = true}), 12);
  EXPECT_EQ(usage().live, 0u);
  EXPECT_THAT(refusal({}), HasSubstr("model 'm' has no live sequence 1: it has not begun"));
  EXPECT_EQ(ask(7, {.sequence = 9, .starts = true, .ends = true}), 8) << "in the same memory";
  EXPECT_EQ(usage().live, 0u);
}

TEST_F(SequencesTest, ANumberAndTheSameTextAreTwoSequences) {
  start();
  EXPECT_EQ(ask(1, {.sequence = 7, .starts = true}), 2);
  a->sequence = {.number = 0, .text = "7", .starts = true};
  ASSERT_TRUE(send(*a, 0, 50));
  EXPECT_EQ(take(), 51);
  EXPECT_EQ(ask(1, {.sequence = 7}), 4);
  a->sequence = {.number = 0, .text = "7"};
  ASSERT_TRUE(send(*a, 0, 50));
  EXPECT_EQ(take(), 102);
  a->sequence = {.number = 0, .text = "8"};
  ASSERT_TRUE(send(*a, 0, 50));
  run_until([&] { return a->done.size() == 5; });
  EXPECT_THAT(std::string(a->call(0).infer.status.message()), HasSubstr("no live sequence \"8\""));
}

// --- turns ---------------------------------------------------------------------------------------

TEST_F(SequencesTest, RequestsOfASequenceRunOneAfterTheOtherInTheirOrder) {
  start(kConfig, 2);
  EXPECT_EQ(ask(0, {.starts = true}), 1);
  control->hold();
  for (uint32_t slot = 0; slot < 10; ++slot) put(*b, slot, 1, {});
  control->wait_until_held(1);
  EXPECT_FALSE(control->wait_until_held(2, 20'000'000)) << "the others wait";
  control->release();
  wait_for(1, 10);
  for (uint32_t slot = 0; slot < 10; ++slot) {
    EXPECT_EQ(b->region[slot].reply[0], 3 + 2 * static_cast<float>(slot));
  }
}

TEST_F(SequencesTest, SequencesShareARunWhereRowsAreIndependent) {
  start_batched();
  for (uint32_t round = 0; round < 3; ++round) {
    (void)control->take_rows_run();
    hold_with_another();
    for (uint32_t slot = 0; slot < 3; ++slot) {
      put(*b, slot, static_cast<float>(10 * slot), {.sequence = slot + 1, .starts = round == 0});
    }
    control->release();
    wait_for(round + 1, 3 * (round + 1));
    EXPECT_THAT(control->take_rows_run(), testing::Contains(testing::Ge(2u)));
    for (uint32_t slot = 0; slot < 3; ++slot) {
      EXPECT_EQ(b->code(slot), Code::kOk);
      const auto expected = static_cast<float>((round + 1) * (10 * slot + 1));
      EXPECT_EQ(b->region[slot].reply[0], expected) << "round " << round << " slot " << slot;
    }
  }
}

TEST_F(SequencesTest, WaitingRequestsOfAnEndedSequenceAskAgain) {
  start();
  control->hold();
  put(*a, 0, 1, {.starts = true, .ends = true});
  control->wait_until_held(1);
  put(*a, 1, 1, {});
  put(*a, 2, 5, {.starts = true});
  put(*a, 3, 5, {});
  control->release();
  wait_for(4, 0);
  EXPECT_EQ(a->region[0].reply[0], 2);
  EXPECT_EQ(a->code(1), Code::kInvalidArgument) << "nobody has begun it anew by then";
  EXPECT_EQ(a->region[2].reply[0], 6);
  EXPECT_EQ(a->region[3].reply[0], 12);
}

// --- failures ------------------------------------------------------------------------------------

TEST_F(SequencesTest, AFailedRunLeavesTheStateAsItWas) {
  control->value_that_fails = 66;
  start();
  EXPECT_EQ(ask(1, {.starts = true}), 2);
  fail(66, {});
  EXPECT_EQ(ask(1, {}), 4);
  fail(66, {.ends = true});
  EXPECT_EQ(ask(1, {}), 6) << "its end has not run";
}

// Packed, its share of a run that has ended well does not fit where it wants it.
TEST_F(SequencesTest, AnAnswerWithoutRoomLeavesTheStateAsItWas) {
  start_batched();
  for (uint32_t round = 0; round < 3; ++round) {
    hold_with_another();
    b->reply_room = round == 1 ? 0 : SIZE_MAX;
    for (uint32_t slot = 0; slot < 3; ++slot) {
      put(*b, slot, 1, {.sequence = slot + 1, .starts = round == 0});
    }
    control->release();
    wait_for(round + 1, 3 * (round + 1));
    for (uint32_t slot = 0; slot < 3; ++slot) {
      EXPECT_EQ(b->code(slot), round == 1 ? Code::kTooLarge : Code::kOk);
      if (round == 2) {
        EXPECT_EQ(b->region[slot].reply[0], 4) << "two have ended well";
      }
    }
  }
}

TEST_F(SequencesTest, ASequenceWhoseFirstRunFailsHasNotBegun) {
  control->value_that_fails = 66;
  start();
  fail(66, {.starts = true});
  EXPECT_EQ(usage().live, 0u);
  EXPECT_THAT(refusal({}), HasSubstr("no live sequence 1"));
}

TEST_F(SequencesTest, ACancelledRequestThatWaitsLeavesAndTheNextHasItsTurn) {
  start();
  control->hold();
  put(*a, 0, 1, {.starts = true});
  control->wait_until_held(1);
  for (uint32_t slot = 1; slot < 5; ++slot) put(*a, slot, 1, {});
  a->cancel(1);
  a->cancel(3);
  run_until([&] { return a->done.size() == 2; });
  EXPECT_EQ(a->code(1), Code::kCancelled);
  control->release();
  wait_for(5, 0);
  EXPECT_EQ(a->region[2].reply[0], 4);
  EXPECT_EQ(a->region[4].reply[0], 6);
}

TEST_F(SequencesTest, AStartThatIsCancelledWhileItWaitsEndsTheSequence) {
  start();
  control->hold();
  put(*a, 0, 1, {.starts = true});
  control->wait_until_held(1);
  put(*a, 1, 1, {.starts = true});
  put(*a, 2, 1, {});
  a->cancel(1);
  control->release();
  wait_for(3, 0);
  EXPECT_EQ(a->region[0].reply[0], 2);
  EXPECT_EQ(a->code(2), Code::kInvalidArgument);
  EXPECT_EQ(usage().live, 0u);
}

TEST_F(SequencesTest, ALateRequestIsAnsweredWhileItWaits) {
  start();
  control->hold();
  put(*a, 0, 1, {.starts = true});
  control->wait_until_held(1);
  put(*a, 1, 1, {}, now_ns() + 1'000'000);
  run_until([&] {
    a->dispatcher.expire(now_ns());
    return a->done.size() == 1;
  });
  EXPECT_EQ(a->code(1), Code::kDeadlineExceeded);
  control->release();
  wait_for(2, 0);
  EXPECT_EQ(ask(1, {}), 4);
}

// --- bounds --------------------------------------------------------------------------------------

TEST_F(SequencesTest, OneMoreThanTheMostIsRefusedUntilOneEnds) {
  start();
  for (uint64_t id = 1; id <= 4; ++id) EXPECT_EQ(ask(0, {.sequence = id, .starts = true}), 1);
  EXPECT_THAT(refusal({.sequence = 5, .starts = true}, Code::kResourceExhausted),
              HasSubstr("has 4 live sequences, as many as \"sequences.most\""));
  EXPECT_EQ(ask(0, {.sequence = 2}), 2) << "live ones go on";
  EXPECT_EQ(ask(0, {.sequence = 3, .ends = true}), 2);
  EXPECT_EQ(ask(0, {.sequence = 5, .starts = true}), 1);
}

TEST_F(SequencesTest, AnIdleSequenceIsDroppedAndMakesRoom) {
  start(R"({"sequences": {"states": [{"input": "h", "output": "h_out"}], "most": 2,
                          "idle_ms": 1}})");
  EXPECT_EQ(ask(0, {.sequence = 1, .starts = true}), 1);
  EXPECT_EQ(ask(0, {.sequence = 2, .starts = true}), 1);
  const uint64_t begin = now_ns();
  while (now_ns() - begin < 2'000'000) std::this_thread::yield();
  EXPECT_THAT(refusal({.sequence = 1}), HasSubstr("dropped after 1 ms without a request"));
  EXPECT_EQ(ask(0, {.sequence = 3, .starts = true}), 1);
  EXPECT_GE(usage().dropped, 2u) << "the third, too, on a slow machine";
}

TEST_F(SequencesTest, RequestsThatNoSequenceTakesAreRefused) {
  start();
  EXPECT_THAT(refusal({.sequence = 0}), HasSubstr("say which by the parameter sequence_id"));
  EXPECT_THAT(refusal({.sequence = 0, .starts = true}), HasSubstr("sequence_id"));
}

TEST_F(SequencesTest, AModelWithoutStatesTakesRequestsOfSequencesAsAnyOther) {
  control->models_with_a_state.clear();
  start("{}");
  EXPECT_EQ(ask(3, {.sequence = 5}), 4);
  EXPECT_EQ(ask(3, {.sequence = 5, .starts = true}), 4);
  EXPECT_FALSE(sequences->usage(*models->model));
}

// --- random --------------------------------------------------------------------------------------

// Each sequence belongs to one I/O thread, so that the order of its requests is known. A request
// was run or not, as its status says; the sums tell whether the state was the right one.
TEST_F(SequencesTest, RandomRequestsAgreeWithAnOracle) {
  control->value_that_fails = 66;
  start(R"({"sequences": {"states": [{"input": "h", "output": "h_out"}], "most": 6}})", 2);
  struct Sent {
    uint32_t slot;
    Place place;
    float value;
  };
  std::mt19937_64 random(20261130);
  const auto below = [&random](uint64_t most) { return random() % most; };
  std::map<std::pair<int, uint64_t>, std::optional<float>> live;
  for (int round = 0; round < 300; ++round) {
    std::array<std::vector<Sent>, 2> sent;
    const size_t done_a = a->done.size();
    const size_t done_b = b->done.size();
    for (int thread = 0; thread < 2; ++thread) {
      SlotTransport& transport = thread == 0 ? *a : *b;
      const uint32_t count = static_cast<uint32_t>(below(12));
      for (uint32_t slot = 0; slot < count; ++slot) {
        const Sent one{.slot = slot,
                       .place = {.sequence = 1 + below(3) + (thread == 0 ? 0 : 100),
                                 .starts = below(4) == 0,
                                 .ends = below(6) == 0},
                       .value = below(10) == 0 ? 66.0f : static_cast<float>(below(5))};
        put(transport, slot, one.value, one.place,
            below(8) == 0 ? now_ns() + below(20'000) : UINT64_MAX);
        if (below(6) == 0) transport.cancel(static_cast<uint32_t>(below(slot + 1)));
        sent[static_cast<size_t>(thread)].push_back(one);
      }
    }
    run_until([&] {
      a->dispatcher.expire(now_ns());
      b->dispatcher.expire(now_ns());
      return a->done.size() == done_a + sent[0].size() && b->done.size() == done_b + sent[1].size();
    });
    for (int thread = 0; thread < 2; ++thread) {
      SlotTransport& transport = thread == 0 ? *a : *b;
      for (const Sent& one : sent[static_cast<size_t>(thread)]) {
        std::optional<float>& state = live[{thread, one.place.sequence}];
        const Code code = transport.code(one.slot);
        if (code == Code::kInvalidArgument) {
          EXPECT_TRUE(!state && !one.place.starts) << round;
          continue;
        }
        if (code != Code::kOk) {
          // A start that has not run leaves none. A late or cancelled request without a sequence
          // may have left before it was refused.
          if (one.place.starts) state.reset();
          continue;
        }
        if (one.place.starts) state = 0;
        ASSERT_TRUE(state) << round;
        state = *state + one.value + 1;
        EXPECT_EQ(transport.region[one.slot].reply[0], *state) << round;
        if (one.place.ends) state.reset();
      }
    }
    uint64_t expected = 0;
    for (const auto& [id, state] : live) expected += state.has_value() ? 1 : 0;
    ASSERT_EQ(usage().live, expected) << round;
  }
  EXPECT_GT(usage().started, 100u);
}

}  // namespace
}  // namespace lumen::sequences
