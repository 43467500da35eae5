// A transport that knows neither sockets nor HTTP, see slot_transport.h: the proof that a call
// knows none. One connection keeps 64 calls at work, which complete in any order, and some of which
// it cancels.
#include "unit/service/slot_transport.h"

#include <lumen/engine/engine.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace lumen::service {
namespace {

class SecondTransport : public testing::TestWithParam<models::QueueType> {
 protected:
  void start(uint32_t workers) {
    models.emplace(control);
    engine::EngineOptions options;
    options.config = {.queue_type = GetParam(), .thread_count = workers, .queue_capacity = 256};
    options.pin_threads.mode = PinThreads::Mode::kOff;
    engine = std::move(engine::Engine::create(options, *models->repository).value());
    transport.emplace(engine->submitter(0), *models->counters);
  }
  void submit_all() {
    for (uint32_t i = 0; i < kSlots; ++i) {
      ASSERT_TRUE(transport->send(i, *models->model, static_cast<float>(i)));
    }
  }
  void wait_for_all() {
    while (transport->done.size() < kSlots) {
      transport->turn();
      std::this_thread::yield();
    }
  }
  void expect_reply(uint32_t slot) {
    const auto value = static_cast<float>(slot);
    EXPECT_THAT(transport->region[slot].reply,
                testing::ElementsAre(value + 1, value + 2, value + 3, value + 4));
    EXPECT_EQ(transport->code(slot), Code::kOk);
    EXPECT_EQ(transport->times_encoded(slot), 1u);
  }

  std::shared_ptr<models::FakeControl> control = std::make_shared<models::FakeControl>();
  std::optional<OneModel> models;
  std::optional<SlotTransport> transport;
  std::unique_ptr<engine::Engine> engine;  // goes first: it completes its requests
};

TEST_P(SecondTransport, KeepsManyCallsOfOneConnectionAtWorkWhichCompleteInAnyOrder) {
  control->asynchronous = true;  // a device that completes out of order
  control->max_in_flight = 16;
  start(1);
  const uint64_t starts_before = control->starts.load();
  control->hold();
  submit_all();
  while (control->starts.load() < starts_before + control->max_in_flight) transport->turn();
  control->release();
  wait_for_all();
  EXPECT_FALSE(std::ranges::is_sorted(transport->done)) << "seed " << control->seed;
  EXPECT_EQ(transport->done.size(), kSlots) << "each once";
  for (uint32_t i = 0; i < kSlots; ++i) expect_reply(i);
}

TEST_P(SecondTransport, ACancelledCallIsNotRunAndItsNeighboursAre) {
  start(1);
  if (GetParam() != models::QueueType::kInline) control->hold();
  submit_all();
  // A worker has taken some at most, as many as `batched` packs; the rest wait.
  constexpr uint32_t kFirstCancelled = 32;
  for (uint32_t i = kFirstCancelled; i < kSlots; i += 2) transport->cancel(i);
  control->release();
  wait_for_all();
  EXPECT_EQ(transport->done.size(), kSlots) << "each once";
  for (uint32_t i = 0; i < kSlots; ++i) {
    if (i < kFirstCancelled || i % 2 == 1) {
      expect_reply(i);
      continue;
    }
    EXPECT_EQ(transport->code(i), Code::kCancelled);
    EXPECT_EQ(transport->times_encoded(i), 0u);
    EXPECT_THAT(transport->region[i].reply, testing::Each(-1.0f))
        << "nothing is written for nobody";
  }
  EXPECT_EQ(models->counters->total("cancelled"), (kSlots - kFirstCancelled) / 2);
}

INSTANTIATE_TEST_SUITE_P(QueueTypes, SecondTransport,
                         testing::Values(models::QueueType::kMpmc, models::QueueType::kSpsc,
                                         models::QueueType::kNaive, models::QueueType::kBatched,
                                         models::QueueType::kInline, models::QueueType::kAuto),
                         [](const auto& one) { return std::string(name_of(one.param)); });

}  // namespace
}  // namespace lumen::service
