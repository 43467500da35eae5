// The engine under load from several threads: each accepted request completes exactly once with its
// own answer, also while it is drained. Seeded by LUMEN_STRESS_SEED (printed), scaled by
// LUMEN_STRESS_SCALE.
#include <lumen/engine/engine.h>

#include "support/fake_backend.h"
#include "support/pending_request.h"
#include "support/stress.h"
#include "support/submit_now.h"
#include "support/temp_repository.h"

#include <gtest/gtest.h>

#include <array>
#include <ostream>
#include <random>
#include <thread>

namespace lumen::engine {
namespace {

constexpr size_t kClients = 3;

struct StressCase {
  const char* name;
  models::QueueType queue_type;
  bool asynchronous;
  uint32_t max_in_flight;
  uint32_t workers;
  size_t queue_capacity;
};

std::ostream& operator<<(std::ostream& out, const StressCase& c) { return out << c.name; }

class EngineStress : public testing::TestWithParam<StressCase> {
 protected:
  void start() {
    const auto& param = GetParam();
    control->asynchronous = param.asynchronous;
    control->max_in_flight = param.max_in_flight;
    control->seed = seed;
    for (const char* name : {"a", "b", "c"}) files.add_model(name);
    repository = std::move(
        models::ModelRepository::open(files.path(), models::make_fake_backend(control), *counters)
            .value());
    EngineOptions options;
    options.config = {.queue_type = param.queue_type,
                      .thread_count = param.workers,
                      .batch_size = 8,
                      .queue_capacity = param.queue_capacity};
    options.submitter_count = kClients;
    options.pin_threads.mode = PinThreads::Mode::kOff;
    engine = std::move(Engine::create(options, *repository).value());
  }

  // Submits `count` requests, kWindow at a time, waits for and checks each that was accepted.
  size_t run_client(uint32_t submitter, uint64_t client_seed, size_t count) {
    std::mt19937_64 random(client_seed);
    constexpr size_t kWindow = 16;
    size_t answered = 0;
    std::array<std::unique_ptr<models::PendingRequest>, kWindow> window;
    std::array<float, kWindow> sent{};
    for (size_t done = 0; done < count; done += kWindow) {
      for (size_t i = 0; i < kWindow; ++i) {
        const std::array<const char*, 3> names = {"a", "b", "c"};
        sent[i] = static_cast<float>(random() % 1'000'000);
        window[i] = std::make_unique<models::PendingRequest>(
            repository->find(names[random() % names.size()], ""), 4096);
        window[i]->add_input<float>(ElementType::kFp32, {1, 4}, {sent[i], 0, 0, 0});
        if (random() % 16 == 0) window[i]->request.deadline_ns = now_ns() + random() % 50'000;
        if (submit_now(*engine, window[i]->request, submitter) != SubmitOutcome::kAccepted)
          window[i].reset();
      }
      for (size_t i = 0; i < kWindow; ++i) {
        if (window[i] == nullptr) continue;
        // As an I/O thread does: with `inline` no other thread runs its requests.
        while (window[i]->times_completed() == 0) {
          if (engine->submitter(submitter).end_turn() == 0) std::this_thread::yield();
        }
        ++answered;
        const models::InferRequest& request = window[i]->request;
        EXPECT_EQ(window[i]->times_completed(), 1u);
        if (request.status.ok()) {
          EXPECT_EQ(window[i]->output<float>(0)[0], sent[i] + 1);
        } else {
          EXPECT_EQ(request.status.code(), Code::kDeadlineExceeded);
        }
      }
    }
    return answered;
  }

  const uint64_t seed = test::stress_seed();
  models::TempRepository files;
  std::shared_ptr<models::FakeControl> control = std::make_shared<models::FakeControl>();
  std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<models::ModelRepository> repository;
  std::unique_ptr<Engine> engine;
};

TEST_P(EngineStress, AnswersEachAcceptedRequestExactlyOnceWithItsOwnData) {
  start();
  std::array<size_t, kClients> answered{};
  std::vector<std::thread> clients;
  clients.reserve(kClients);
  for (size_t i = 0; i < answered.size(); ++i) {
    clients.emplace_back([&, i] {
      answered[i] = run_client(static_cast<uint32_t>(i), seed + i, test::stress_count(5'000));
    });
  }
  for (std::thread& client : clients) client.join();
  engine->drain();
  for (const size_t count : answered) EXPECT_GT(count, 0u);
}

TEST_P(EngineStress, LosesNothingWhenDrainedUnderLoad) {
  start();
  std::vector<std::thread> clients;
  clients.reserve(kClients);
  std::atomic<bool> go_on{true};
  for (size_t i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      // A request that is neither answered nor refused would make run_client wait for ever.
      // relaxed: a flag without data
      for (uint64_t round = 0; go_on.load(std::memory_order_relaxed); ++round) {
        (void)run_client(static_cast<uint32_t>(i), seed + i + 17 * round, 64);
      }
    });
  }
  std::mt19937_64 random(seed);
  const uint64_t until = control->starts.load() + 500 + random() % 500;
  while (control->starts.load() < until) std::this_thread::yield();
  engine->drain();
  go_on.store(false, std::memory_order_relaxed);  // relaxed: as above
  for (std::thread& client : clients) client.join();
}

TEST_P(EngineStress, LosesNothingWhileItsConfigurationChanges) {
  start();
  std::vector<std::thread> clients;
  clients.reserve(kClients);
  std::atomic<size_t> left{kClients};
  std::atomic<bool> stop{false};
  std::array<size_t, kClients> answered{};
  for (size_t i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      const auto submitter = static_cast<uint32_t>(i);
      answered[i] = run_client(submitter, seed + i, test::stress_count(5'000));
      left.fetch_sub(1);
      // A change that is under way may still need this thread to retire its part.
      while (!stop.load()) {
        engine->submitter(submitter).end_turn();
        std::this_thread::yield();
      }
    });
  }
  std::mt19937_64 random(seed);
  size_t changes = 0;
  while (left.load() > 0) {
    EngineConfig config = engine->config();
    config.queue_type = static_cast<models::QueueType>(random() % models::kQueueTypeNames.size());
    config.policy = static_cast<Policy>(random() % kPolicyNames.size());
    config.allocator_type =
        static_cast<models::AllocatorType>(random() % models::kAllocatorTypeNames.size());
    config.thread_count = 1 + static_cast<uint32_t>(random() % 3);
    config.batch_size = 1 + static_cast<uint32_t>(random() % 8);
    ASSERT_TRUE(engine->reconfigure(config).ok());
    ++changes;
  }
  stop.store(true);
  for (std::thread& client : clients) client.join();
  engine->drain();
  EXPECT_GT(changes, 0u);
  for (const size_t count : answered) EXPECT_GT(count, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, EngineStress,
    testing::Values(StressCase{"OneWorker", models::QueueType::kMpmc, false, 1, 1, 1024},
                    StressCase{"FourWorkers", models::QueueType::kMpmc, false, 1, 4, 1024},
                    StressCase{"TinyQueue", models::QueueType::kMpmc, false, 1, 2, 2},
                    StressCase{"AsyncOneInFlight", models::QueueType::kMpmc, true, 1, 1, 1024},
                    StressCase{"AsyncEightInFlight", models::QueueType::kMpmc, true, 8, 2, 64},
                    StressCase{"Spsc", models::QueueType::kSpsc, false, 1, 2, 64},
                    StressCase{"SpscAsync", models::QueueType::kSpsc, true, 4, 2, 64},
                    StressCase{"Naive", models::QueueType::kNaive, false, 1, 2, 64},
                    StressCase{"NaiveAsync", models::QueueType::kNaive, true, 4, 2, 64},
                    StressCase{"Batched", models::QueueType::kBatched, false, 1, 2, 64},
                    StressCase{"BatchedAsync", models::QueueType::kBatched, true, 1, 2, 64},
                    StressCase{"Inline", models::QueueType::kInline, false, 1, 1, 64},
                    StressCase{"Auto", models::QueueType::kAuto, false, 1, 2, 64},
                    StressCase{"AutoAsync", models::QueueType::kAuto, true, 4, 2, 64},
                    StressCase{"InlineAsync", models::QueueType::kInline, true, 2, 1, 64}),
    [](const testing::TestParamInfo<StressCase>& one) { return one.param.name; });

}  // namespace
}  // namespace lumen::engine
