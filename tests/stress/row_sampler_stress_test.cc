// Rows are sampled by several threads while a control thread begins, ends, reads and drops samples:
// each row that is read is whole, and nothing is used once it is freed.
#include <lumen/engine/engine.h>
#include <lumen/service/catalog.h>
#include <lumen/service/row_sampler.h>

#include "support/fake_backend.h"
#include "support/pending_request.h"
#include "support/stress.h"
#include "support/temp_repository.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace lumen::service {
namespace {

constexpr uint32_t kThreads = 3;
constexpr uint32_t kRows = 4;  // few, so that threads meet in a slot

// One number four times, which no other row holds.
using Row = std::array<uint32_t, 4>;

void take_samples(RowSampler& sampler, const std::shared_ptr<models::Model>& model) {
  const uint64_t samples = test::stress_count(400);
  for (uint64_t i = 0; i < samples; ++i) {
    ASSERT_TRUE(sampler.begin(model, kRows).ok());
    while (sampler.count().seen < 3 * kRows) std::this_thread::yield();
    sampler.end();
    ASSERT_EQ(sampler.count().kept, kRows);
    std::vector<uint32_t> kept;
    for (uint32_t number = 0; number < kRows; ++number) {
      Row row{};
      const std::vector<TensorView> tensors = sampler.row(number);
      ASSERT_EQ(tensors.size(), 1u);
      ASSERT_EQ(tensors[0].byte_size, sizeof row);
      std::memcpy(row.data(), tensors[0].data, sizeof row);
      ASSERT_EQ(std::ranges::count(row, row[0]), 4) << "of two rows";
      kept.push_back(row[0]);
    }
    std::ranges::sort(kept);
    ASSERT_EQ(std::ranges::adjacent_find(kept), kept.end()) << "a row is there twice";
    sampler.drop();
  }
}

TEST(RowSamplerStress, EachRowThatIsReadIsWhole) {
  auto control = std::make_shared<models::FakeControl>();
  models::TempRepository files;
  files.add_model("m");
  const auto counters = std::make_unique<telemetry::Counters>();
  const auto repository = std::move(
      models::ModelRepository::open(files.path(), models::make_fake_backend(control), *counters)
          .value());
  engine::EngineOptions options;
  options.config = {.thread_count = 1};
  options.pin_threads.mode = PinThreads::Mode::kOff;
  const auto engine = std::move(engine::Engine::create(options, *repository).value());
  Catalog catalog(
      *repository, *engine,
      [](const models::Model&, std::span<const std::string>) -> ModelDocuments { return {}; });
  RowSampler sampler(1 << 20, [&] { catalog.wait_for_turns(); });
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i) {
    Catalog::Reader& reader = catalog.add_reader([] {});  // they never sleep
    threads.emplace_back([&, i] {
      models::PendingRequest request(repository->find("m", ""));
      request.add_input<float>(ElementType::kFp32, {2, 4}, std::vector<float>(8));
      std::byte* const data = request.request.inputs[0].data;
      Call call;
      call.infer.model = request.request.model;
      call.infer.inputs = request.request.inputs;
      Row row{};
      uint32_t number = i;
      while (!stop) {
        for (size_t at = 0; at < 2; ++at, number += kThreads) {
          row.fill(number);
          std::memcpy(data + at * sizeof row, row.data(), sizeof row);
        }
        EXPECT_EQ(sampler.before(call), StepOutcome::kNext);
        reader.end_turn();
      }
      reader.close();
    });
  }
  take_samples(sampler, repository->models().front());
  stop = true;
  for (std::thread& thread : threads) thread.join();
  catalog.close();
  engine->drain();
}

}  // namespace
}  // namespace lumen::service
