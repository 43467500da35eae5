// Models come and go through Catalog and Engine while others are asked for, with every queue type:
// nothing is rebuilt, and no request is lost, answered twice or by a model that has left.
#include <lumen/engine/engine.h>
#include <lumen/service/catalog.h>

#include "support/fake_backend.h"
#include "support/pending_request.h"
#include "support/temp_repository.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace lumen::service {
namespace {

using models::PendingRequest;
using models::QueueType;

constexpr uint32_t kClients = 2;
constexpr uint32_t kWorkers = 2;
constexpr size_t kOutAtOnce = 8;  // requests of a client

class CatalogUnderLoad : public testing::TestWithParam<std::tuple<QueueType, bool>> {
 protected:
  void SetUp() override {
    for (const char* model : {"comes", "stays"}) files.add_model(model);
    control->asynchronous = std::get<bool>(GetParam());
    control->max_in_flight = 4;
    repository = std::move(
        models::ModelRepository::open(files.path(), models::make_fake_backend(control), *counters)
            .value());
    engine::EngineOptions options;
    options.config = {.queue_type = std::get<QueueType>(GetParam()), .thread_count = kWorkers};
    options.submitter_count = kClients;
    options.pin_threads.mode = PinThreads::Mode::kOff;
    engine = std::move(engine::Engine::create(options, *repository).value());
    catalog = std::make_unique<Catalog>(
        *repository, *engine,
        [](const models::Model& model, std::span<const std::string> versions) {
          return ModelDocuments{model.metadata().name + std::to_string(versions.size()), ""};
        },
        [](const models::Model& model) {
          EXPECT_EQ(model.counters().total("inference"), 0u) << "another's, from before";
        });
    for (uint32_t i = 0; i < kClients; ++i) {
      Catalog::Reader& reader = catalog->add_reader([] {});  // the clients never sleep
      threads.emplace_back([this, i, &reader] { run_client(i, reader); });
    }
  }
  // Whether so many models have `count` instances: one for each worker (with `inline`: client).
  // With `auto` also for the clients and for the worker that passes heavy runs, if the model was
  // measured to be light, which under a sanitizer it may not be.
  static bool are_instances_of(uint32_t models, uint32_t count) {
    const bool is_auto = std::get<QueueType>(GetParam()) == QueueType::kAuto;
    const uint32_t most = is_auto ? kWorkers + kClients + 1 : kWorkers;
    return kWorkers * models <= count && count <= most * models;
  }
  static_assert(kWorkers == kClients);
  void TearDown() override {
    control->release();
    stop = true;
    for (std::thread& thread : threads) thread.join();
    catalog->close();
    engine->drain();
    EXPECT_EQ(answered.load(), submitted.load());
  }

  struct Out {
    std::unique_ptr<PendingRequest> pending;
    models::Model* model;
  };
  // A thread with requests: turns in which it looks, holds, submits, and lets go of answered ones.
  void run_client(uint32_t number, Catalog::Reader& reader) {
    std::vector<Out> out;
    while (!stop || !out.empty()) {
      for (const char* name : {"stays", "comes"}) {
        const CatalogModel* found = reader.now().find(name, "");
        if (found != nullptr && !stop && out.size() < kOutAtOnce) {
          ask(number, *found->model, reader, out);
        }
      }
      while (engine->submitter(number).end_turn() > 0) {
      }
      std::erase_if(out, [&](const Out& one) { return take_back(one, reader); });
      reader.end_turn();
      std::this_thread::yield();
    }
    engine->submitter(number).close();
    reader.close();
  }
  void ask(uint32_t number, models::Model& model, Catalog::Reader& reader, std::vector<Out>& out) {
    Out one{std::make_unique<PendingRequest>(&model, 4096), &model};
    one.pending->add_input<float>(ElementType::kFp32, {1, 4}, {1, 2, 3, 4});
    reader.hold(model);
    if (engine->submitter(number).submit(one.pending->request) !=
        engine::SubmitOutcome::kAccepted) {
      reader.release(model);
      return;
    }
    ++submitted;
    out.push_back(std::move(one));
  }
  bool take_back(const Out& one, Catalog::Reader& reader) {
    if (one.pending->times_completed() == 0) return false;
    EXPECT_EQ(one.pending->times_completed(), 1u);
    EXPECT_TRUE(one.pending->request.status.ok()) << one.pending->request.status.message();
    EXPECT_EQ(one.pending->output<float>(0), (std::vector<float>{2, 3, 4, 5}));
    if (one.model->metadata().name == "comes") ++answered_by_comes;
    ++answered;
    reader.release(*one.model);
    return true;
  }
  void wait_for_more(const std::atomic<uint64_t>& count) {
    const uint64_t before = count;
    while (count < before + 20) std::this_thread::yield();
  }

  models::TempRepository files;
  std::shared_ptr<models::FakeControl> control = std::make_shared<models::FakeControl>();
  std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<models::ModelRepository> repository;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<Catalog> catalog;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> submitted{0};
  std::atomic<uint64_t> answered{0};
  std::atomic<uint64_t> answered_by_comes{0};
  std::vector<std::thread> threads;
};

TEST_P(CatalogUnderLoad, AModelComesAndGoesAndOnlyItsInstancesAreMade) {
  const uint32_t index = repository->find("comes", "")->index();
  uint32_t made = control->instances;
  EXPECT_PRED2(are_instances_of, 2, made);
  for (int round = 0; round < 15; ++round) {
    wait_for_more(answered_by_comes);
    ASSERT_TRUE(catalog->remove("comes", "").ok());
    EXPECT_PRED2(are_instances_of, 1, control->live_instances.load()) << "those of the other model";
    EXPECT_EQ(catalog->snapshot()->find("comes", ""), nullptr);
    wait_for_more(answered);
    const Status added = catalog->add("comes", "");
    ASSERT_TRUE(added.ok()) << added.message();
    EXPECT_PRED2(are_instances_of, 1, control->instances.load() - made) << "of no other model";
    made = control->instances.load();
    EXPECT_PRED2(are_instances_of, 2, control->live_instances.load()) << "no second set";
    EXPECT_EQ(catalog->snapshot()->find("comes", "1")->model->index(), index) << "used again";
  }
  wait_for_more(answered_by_comes);
}

TEST_P(CatalogUnderLoad, AChangeOfTheConfigurationTakesTheModelsThatAreThereThen) {
  ASSERT_TRUE(catalog->remove("comes", "").ok());
  engine::EngineConfig config = engine->config();
  config.queue_capacity *= 2;
  ASSERT_TRUE(engine->reconfigure(config).ok());
  ASSERT_TRUE(catalog->add("comes", "").ok());
  wait_for_more(answered_by_comes);
  config.queue_capacity *= 2;
  ASSERT_TRUE(engine->reconfigure(config).ok());
  wait_for_more(answered_by_comes);
}

TEST_P(CatalogUnderLoad, AModelThatIsRemovedStaysUntilItsLastRequestIsAnswered) {
  const QueueType type = std::get<QueueType>(GetParam());
  if ((type == QueueType::kInline || type == QueueType::kAuto) && !std::get<bool>(GetParam())) {
    return;  // held, the clients' own threads could do nothing else
  }
  wait_for_more(answered_by_comes);
  control->hold();
  control->wait_until_held(1);
  auto removal = std::async(std::launch::async, [&] { return catalog->remove("comes", ""); });
  while (catalog->snapshot()->find("comes", "") != nullptr) std::this_thread::yield();
  EXPECT_PRED2(are_instances_of, 2, control->live_instances.load());
  control->release();
  EXPECT_TRUE(removal.get().ok());
  EXPECT_PRED2(are_instances_of, 1, control->live_instances.load());
}

TEST_P(CatalogUnderLoad, AFailedAddOrRemoveLeavesAllAsItWas) {
  const auto before = catalog->snapshot();
  EXPECT_EQ(catalog->add("comes", "1").code(), Code::kInvalidArgument);
  EXPECT_EQ(catalog->add("nobody", "").code(), Code::kNotFound);
  EXPECT_EQ(catalog->remove("nobody", "").code(), Code::kNotFound);
  ASSERT_TRUE(catalog->remove("comes", "").ok());
  control->most_instances = control->instances + 1;  // a second worker gets none
  EXPECT_FALSE(catalog->add("comes", "").ok());
  EXPECT_PRED2(are_instances_of, 1, control->live_instances.load());
  control->most_instances = UINT32_MAX;
  ASSERT_TRUE(catalog->add("comes", "").ok());
  wait_for_more(answered_by_comes);
}

INSTANTIATE_TEST_SUITE_P(All, CatalogUnderLoad,
                         testing::Combine(testing::Values(QueueType::kMpmc, QueueType::kSpsc,
                                                          QueueType::kNaive, QueueType::kBatched,
                                                          QueueType::kInline, QueueType::kAuto),
                                          testing::Bool()),
                         [](const testing::TestParamInfo<std::tuple<QueueType, bool>>& one) {
                           return std::string(name_of(std::get<QueueType>(one.param))) +
                                  (std::get<bool>(one.param) ? "Async" : "Sync");
                         });

}  // namespace
}  // namespace lumen::service
