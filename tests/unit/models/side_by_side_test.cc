// Models that are loaded side by side: at once where the backend can, and none while another is
// measured.
// Threads: the test's and those that load. Memory: the heap. Errors: by gtest.
#include <lumen/engine/engine.h>
#include <lumen/models/load_trials.h>

#include "models/choice_cache.h"
#include "support/two_backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <string>
#include <thread>
#include <vector>

namespace lumen::models {
namespace {

class SideBySide : public TwoBackends {
 protected:
  SideBySide() {
    first->traits.loads_in_parallel = true;
    second->traits.loads_in_parallel = true;
    options.backend = "first";
    options.threads = 2;
    options.budget_ns = 5'000'000;
    files.add_model("a");
    files.add_model("b");
  }
  void expect_all_ready() const {
    for (const auto& model : repository->models()) {
      EXPECT_EQ(model->state(), ModelState::kReady) << model->reason();
    }
  }
};

// One thread alone would wait at the barrier for ever.
TEST_F(SideBySide, TwoModelsAreLoadedAtOnce) {
  std::barrier both(2);
  first->on_load = [&both] { both.arrive_and_wait(); };
  open();
  expect_all_ready();
}

TEST_F(SideBySide, InstancesOfTwoModelsAreMadeAtOnce) {
  std::barrier both(2);
  open();
  first->on_instance = [&both] { both.arrive_and_wait(); };
  engine::EngineOptions engine;
  engine.config = {.queue_type = QueueType::kMpmc, .thread_count = 1};
  engine.pin_threads.mode = PinThreads::Mode::kOff;
  EXPECT_TRUE(engine::Engine::create(engine, *repository).ok());
}

TEST_F(SideBySide, ABackendThatLoadsOneModelAtATimeIsAskedByOneThreadAtATime) {
  second->traits.loads_in_parallel = false;
  options.backend = "second";
  for (const char* name : {"c", "d", "e", "f"}) files.add_model(name);
  std::atomic<int> inside{0};
  const auto look = [&inside] {
    EXPECT_EQ(inside.fetch_add(1), 0);
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    inside.fetch_sub(1);
  };
  second->on_load = look;
  second->on_instance = look;
  open();
  expect_all_ready();
}

TEST_F(SideBySide, AModelThatFailsLeavesTheOthersServed) {
  first->models_that_fail_to_load = {"a"};
  open();
  EXPECT_EQ(repository->find("a", "")->state(), ModelState::kUnavailable);
  EXPECT_EQ(repository->find("b", "")->state(), ModelState::kReady);
}

TEST_F(SideBySide, EachModelIsToldOnceWithANumberOfItsOwn) {
  std::vector<size_t> numbers;
  const auto opened = ModelRepository::open(files.path(), both(), *counters, options,
                                            [&](const Model&, size_t number, size_t count) {
                                              EXPECT_EQ(count, 2u);
                                              numbers.push_back(number);
                                            });
  ASSERT_TRUE(opened.ok());
  EXPECT_THAT(numbers, testing::ElementsAre(1, 2));
}

// The machine's time for a load would count as the time of the call that is measured.
std::atomic<int> loading{0};
std::atomic<int> calls_beside_a_load{0};
uint64_t look_for_loads(uint64_t) {
  if (loading.load() > 0) calls_beside_a_load.fetch_add(1);
  return 0;
}

TEST_F(SideBySide, NoModelIsLoadedWhileAnotherIsMeasured) {
  options.backend = "auto";
  options.threads = 3;
  for (const char* name : {"c", "d", "e", "f"}) files.add_model(name);
  const auto load = [] {
    loading.fetch_add(1);
    for (int i = 0; i < 200; ++i) std::this_thread::yield();
    loading.fetch_sub(1);
  };
  for (const auto& control : {first, second}) {
    control->on_load = load;
    control->on_instance = load;
    control->cost_ns = look_for_loads;
  }
  open();
  expect_all_ready();
  EXPECT_EQ(calls_beside_a_load.load(), 0);
}

TEST_F(SideBySide, TrialsOfTwoModelsRunAtOnce) {
  class Trials final : public LoadTrials {
   public:
    Status try_in_process(const ModelSource&, std::string_view, const std::atomic<bool>*) override {
      both_.arrive_and_wait();
      return {};
    }
    void end() noexcept override {}

   private:
    std::barrier<> both_{2};
  } trials;
  options.trials = &trials;
  open();
  expect_all_ready();
}

TEST_F(SideBySide, AStopEndsTheLoadingOfAllThreads) {
  std::atomic<bool> stop{false};
  options.stop = &stop;
  std::atomic<int> loads{0};
  first->on_load = [&] {
    loads.fetch_add(1);
    stop.store(true);
  };
  for (const char* name : {"c", "d", "e", "f"}) files.add_model(name);
  const auto opened = ModelRepository::open(files.path(), both(), *counters, options);
  EXPECT_EQ(opened.status().code(), Code::kCancelled);
  EXPECT_LE(loads.load(), 2) << "each thread ends the model that it has begun, and begins no other";
}

TEST(ChoiceCacheBySeveralThreads, KeepsTheChoicesOfAll) {
  constexpr int kThreads = 4;
  constexpr int kEach = 20;
  const TempRepository folder;
  const ChoiceCache cache(folder.path() / "choices.json");
  const auto key_of = [](int thread, int i) {
    return std::to_string(thread) + "." + std::to_string(i);
  };
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kEach; ++i) cache.put(key_of(thread, i), {.backend = "first"});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int thread = 0; thread < kThreads; ++thread) {
    for (int i = 0; i < kEach; ++i) {
      EXPECT_TRUE(cache.find(key_of(thread, i)).has_value()) << key_of(thread, i);
    }
  }
}

}  // namespace
}  // namespace lumen::models
