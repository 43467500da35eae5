// The question: what does the choice among models cost, and how does it grow with models and
// threads?
//
//   choice/W     of W models that all have work: a request in and the next one out, by the policy `fair`
//   one_queue    the same through one MpmcQueue for all models, as a floor: it chooses nothing
//
// A request out and in again by each of the threads, which share the queues: items_per_second of
// all. Nobody sleeps.
// Run: .build/native/bench_model_queues
#include "engine/model_queues.h"

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace lumen::engine;

constexpr uint32_t kModels = 256;
constexpr size_t kCapacity = 1024;
constexpr uint32_t kThreads = 16;

const std::vector<std::unique_ptr<lumen::models::Model>>& models() {
  static lumen::telemetry::Counters counters;
  static const auto all = [] {
    std::vector<std::unique_ptr<lumen::models::Model>> made;
    const auto indices = std::make_shared<lumen::models::ModelIndices>();
    for (uint32_t i = 0; i < kModels; ++i) {
      lumen::models::ModelSource source;
      source.name = std::to_string(i);
      made.push_back(std::make_unique<lumen::models::Model>(indices, i, counters, source));
    }
    return made;
  }();
  return all;
}

struct World {
  World() : queues(Policy::kFair, kCapacity, kThreads) {
    for (const auto& model : models()) queues.add(*model, {});
  }
  ModelQueues queues;
  std::vector<lumen::models::InferRequest> waiting =
      std::vector<lumen::models::InferRequest>(kModels * 2);
};
std::unique_ptr<World> world;

void begin(const benchmark::State& state) {
  world = std::make_unique<World>();
  const auto count = static_cast<uint32_t>(state.range(0));
  ModelQueues::Pushed pushed;
  // Two of each wait all the time, so that a model goes on having work while its request is out.
  for (uint32_t i = 0; i < 2 * count; ++i) {
    lumen::models::InferRequest& request = world->waiting[i];
    request.model = models()[i % count].get();
    request.expected_ns = 1000;
    (void)world->queues.push(request, pushed);
  }
  world->queues.announce(pushed);
}
void end(const benchmark::State&) { world = nullptr; }

// The request that was taken goes back in.
void choice(benchmark::State& state) {
  ModelQueues::Pushed pushed;
  int64_t moved = 0;
  for ([[maybe_unused]] auto _ : state) {
    lumen::models::InferRequest* request = world->queues.try_pop(0);
    if (request == nullptr) continue;  // one that is on its way in is before all others
    ++moved;
    (void)world->queues.push(*request, pushed);
    world->queues.announce(pushed);
    pushed.for_any = 0;
  }
  state.SetItemsProcessed(moved);
}

std::unique_ptr<lumen::MpmcQueue<lumen::models::InferRequest*>> queue;

void begin_one(const benchmark::State&) {
  queue = std::make_unique<lumen::MpmcQueue<lumen::models::InferRequest*>>(kCapacity);
  static std::vector<lumen::models::InferRequest> requests(2 * kThreads);
  for (lumen::models::InferRequest& request : requests) (void)queue->try_push(&request);
}
void end_one(const benchmark::State&) { queue = nullptr; }

void one_queue(benchmark::State& state) {
  int64_t moved = 0;
  for ([[maybe_unused]] auto _ : state) {
    lumen::models::InferRequest* request = nullptr;
    if (!queue->try_pop(request)) continue;
    ++moved;
    (void)queue->try_push(std::move(request));
  }
  state.SetItemsProcessed(moved);
}

BENCHMARK(choice)
    ->Arg(1)
    ->Arg(8)
    ->Arg(64)
    ->Arg(256)
    ->Setup(begin)
    ->Teardown(end)
    ->ThreadRange(1, kThreads)
    ->UseRealTime();
BENCHMARK(one_queue)->Setup(begin_one)->Teardown(end_one)->ThreadRange(1, kThreads)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
