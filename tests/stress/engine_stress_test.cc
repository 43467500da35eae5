// The engine under load from several threads: each accepted request completes exactly once with its
// own answer, also while it is drained. Seeded by LUMEN_STRESS_SEED (printed), scaled by LUMEN_STRESS_SCALE.
#include <lumen/engine/engine.h>

#include "support/fake_backend.h"
#include "support/pending_request.h"
#include "support/stress.h"
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
        ModelRepository::open(files.path(), make_fake_backend(control), *counters).value());
    engine = std::move(Engine::create({.worker_count = param.workers,
                                       .queue_capacity = param.queue_capacity,
                                       .pin_workers = false},
                                      *repository)
                           .value());
  }

  // Submits `count` requests, kWindow at a time, waits for and checks each that was accepted.
  size_t run_client(uint64_t client_seed, size_t count) {
    std::mt19937_64 random(client_seed);
    constexpr size_t kWindow = 16;
    size_t answered = 0;
    std::array<std::unique_ptr<PendingRequest>, kWindow> window;
    std::array<float, kWindow> sent{};
    for (size_t done = 0; done < count; done += kWindow) {
      for (size_t i = 0; i < kWindow; ++i) {
        const std::array<const char*, 3> names = {"a", "b", "c"};
        sent[i] = static_cast<float>(random() % 1'000'000);
        window[i] = std::make_unique<PendingRequest>(
            repository->find(names[random() % names.size()], ""), 4096);
        window[i]->add_input<float>(ElementType::kFp32, {1, 4}, {sent[i], 0, 0, 0});
        if (random() % 16 == 0) window[i]->request.deadline_ns = now_ns() + random() % 50'000;
        if (engine->submit(window[i]->request) != SubmitOutcome::kAccepted) window[i].reset();
      }
      for (size_t i = 0; i < kWindow; ++i) {
        if (window[i] == nullptr) continue;
        window[i]->wait();
        ++answered;
        const InferRequest& request = window[i]->request;
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
  TempRepository files;
  std::shared_ptr<FakeControl> control = std::make_shared<FakeControl>();
  std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<ModelRepository> repository;
  std::unique_ptr<Engine> engine;
};

TEST_P(EngineStress, AnswersEachAcceptedRequestExactlyOnceWithItsOwnData) {
  start();
  std::array<size_t, kClients> answered{};
  std::vector<std::thread> clients;
  clients.reserve(kClients);
  for (size_t i = 0; i < answered.size(); ++i) {
    clients.emplace_back([&, i] { answered[i] = run_client(seed + i, test::stress_count(5'000)); });
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
        (void)run_client(seed + i + 17 * round, 64);
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

INSTANTIATE_TEST_SUITE_P(Shapes, EngineStress,
                         testing::Values(StressCase{"OneWorker", false, 1, 1, 1024},
                                         StressCase{"FourWorkers", false, 1, 4, 1024},
                                         StressCase{"TinyQueue", false, 1, 2, 2},
                                         StressCase{"AsyncOneInFlight", true, 1, 1, 1024},
                                         StressCase{"AsyncEightInFlight", true, 8, 2, 64}),
                         [](const testing::TestParamInfo<StressCase>& one) {
                           return one.param.name;
                         });

}  // namespace
}  // namespace lumen::engine
