// Intake: the checks of a request on its way in, their order, and the model that leave() lets go.
// The answers of the engine are those of the test.
// Threads: one, and one that removes a model. Memory: the heap. Errors: by gtest.
#include <lumen/service/intake.h>

#include <lumen/engine/engine.h>

#include "unit/service/service_support.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>

namespace lumen::service {
namespace {

class FakeSubmitter final : public engine::Submitter {
 public:
  engine::SubmitOutcome submit(models::InferRequest& request) noexcept override {
    (void)request;
    return engine::SubmitOutcome::kAccepted;
  }
  bool fits_budget(models::InferRequest& request) noexcept override {
    ++budget_asked;
    outside_ns = request.outside_ns;
    return fits;
  }
  void set_default_deadline(models::InferRequest& request) noexcept override { (void)request; }
  bool has_runs() noexcept override { return false; }
  size_t end_turn() noexcept override { return 0; }
  void close() noexcept override {}
  void wake_if_late() noexcept override {}
  uint64_t next_ns() noexcept override { return UINT64_MAX; }
  Types types(const models::Model& model) noexcept override {
    (void)model;
    return answer;
  }
  size_t room() noexcept override { return 7; }
  void set_wake_sink(models::CompletionSink& sink) noexcept override { (void)sink; }

  Types answer{.queue_type = models::QueueType::kSpsc};
  bool fits = true;
  int budget_asked = 0;
  uint64_t outside_ns = 0;
};

class FakeRoom final : public CallRoom {
 public:
  bool take(Call&, const ModelNeed& model, const BodySize& body) noexcept override {
    ++asked;
    bytes = model.of(body).all_bytes();
    return is_free;
  }
  bool is_free = true;
  int asked = 0;
  size_t bytes = 0;
};

class IntakeTest : public testing::Test {
 protected:
  void start(std::string_view config = "{}") {
    models.emplace(control, config);
    engine::EngineOptions options;
    options.pin_threads.mode = PinThreads::Mode::kOff;
    engine = std::move(engine::Engine::create(options, *models->repository).value());
    catalog.emplace(
        *models->repository, *engine,
        [](const models::Model&, std::span<const std::string>) { return ModelDocuments{}; });
    reader = &catalog->add_reader([] {});
    intake.emplace(*reader, submitter);
  }
  Admission admit(std::string_view name = "m", const BodySize& body = {}) {
    return intake->admit({.model = name, .body = body, .outside_ns = 5}, call, memory, room);
  }
  std::string reason() const { return std::string(call.infer.status.message()); }

  const std::shared_ptr<models::FakeControl> control = std::make_shared<models::FakeControl>();
  std::optional<OneModel> models;
  std::unique_ptr<engine::Engine> engine;
  std::optional<Catalog> catalog;
  Catalog::Reader* reader = nullptr;
  FakeSubmitter submitter;
  FakeRoom room;
  RequestMemory memory = std::move(RequestMemory::create(size_t{1} << 16)).value();
  Call call;
  std::optional<Intake> intake;
};

TEST_F(IntakeTest, AnAdmittedCallHasItsModelAndGoesAsTheEngineSays) {
  start();
  submitter.answer.allocator_type = models::AllocatorType::kStandard;
  ASSERT_EQ(admit(), Admission::kAdmitted);
  EXPECT_EQ(call.infer.model, models->model);
  EXPECT_EQ(call.infer.queue_type, models::QueueType::kSpsc);
  EXPECT_EQ(call.infer.allocator_type, models::AllocatorType::kStandard);
  EXPECT_EQ(memory.kind(), RequestMemory::Kind::kHeap);
  EXPECT_EQ(room.asked, 1);
  EXPECT_EQ(submitter.budget_asked, 0) << "there is none";
  intake->leave(call);
}

TEST_F(IntakeTest, AModelThatNobodyServesIsRefusedAndNothingIsHeld) {
  start();
  EXPECT_EQ(admit("other"), Admission::kRefused);
  EXPECT_EQ(call.infer.status.code(), Code::kNotFound);
  EXPECT_EQ(call.infer.model, nullptr);
  EXPECT_EQ(room.asked, 0);
  intake->leave(call);
}

TEST_F(IntakeTest, AModelThatIsNotReadyIsRefusedBeforeItsQueueIsAsked) {
  start();
  models->model->mark_unavailable("the test says so");
  submitter.answer.has_room = false;
  EXPECT_EQ(admit(), Admission::kRefused);
  EXPECT_EQ(call.infer.status.code(), Code::kUnavailable);
  EXPECT_NE(reason().find("the test says so"), std::string::npos) << reason();
  EXPECT_EQ(room.asked, 0);
  intake->leave(call);
}

TEST_F(IntakeTest, AFullQueueIsRefusedBeforeMemoryIsTaken) {
  start();
  submitter.answer = {.has_latency_budget = true, .has_room = false};
  EXPECT_EQ(admit(), Admission::kRefused);
  EXPECT_EQ(call.infer.status.code(), Code::kResourceExhausted);
  EXPECT_EQ(submitter.budget_asked + room.asked, 0);
  intake->leave(call);
}

TEST_F(IntakeTest, AFullQueueDoesNotRefuseARequestThatTheCacheMayAnswer) {
  start(R"({"response_cache": {"enable": true}})");
  submitter.answer.has_room = false;
  EXPECT_EQ(admit(), Admission::kAdmitted);
  intake->leave(call);
}

TEST_F(IntakeTest, ARequestOverTheLatencyBudgetIsRefusedBeforeMemoryIsTaken) {
  start();
  submitter.answer.has_latency_budget = true;
  submitter.fits = false;
  EXPECT_EQ(admit(), Admission::kRefused);
  EXPECT_EQ(call.infer.status.code(), Code::kOverBudget);
  EXPECT_EQ(submitter.outside_ns, 5u);
  EXPECT_EQ(room.asked, 0);
  intake->leave(call);
}

TEST_F(IntakeTest, TheRoomIsAskedForTheMemoryOfTheBody) {
  start();
  ASSERT_EQ(admit("m", {.binary_bytes = 1000}), Admission::kAdmitted);
  const size_t bytes = room.bytes;
  intake->leave(call);
  call = {};
  room.is_free = false;
  ASSERT_EQ(admit("m", {.binary_bytes = 3000}), Admission::kNoRoom);
  EXPECT_GE(room.bytes, bytes + 2000);
  EXPECT_TRUE(call.infer.status.ok()) << "the transport decides whether it waits";
  intake->leave(call);
}

TEST_F(IntakeTest, AModelStaysUntilItsLastCallHasLeft) {
  start();
  ASSERT_EQ(admit(), Admission::kAdmitted);
  std::atomic<bool> is_removed{false};
  std::thread remover([&] {
    EXPECT_TRUE(catalog->remove("m", "").ok());
    is_removed.store(true);
  });
  for (int i = 0; i < 1000; ++i) {
    reader->end_turn();
    std::this_thread::yield();
    ASSERT_FALSE(is_removed.load());
  }
  intake->leave(call);
  while (!is_removed.load()) {
    reader->end_turn();
    std::this_thread::yield();
  }
  remover.join();
}

TEST_F(IntakeTest, TheThreadsOwnRoomIsTheEngines) {
  start();
  EXPECT_EQ(intake->waiting_room(), 7u);
}

}  // namespace
}  // namespace lumen::service
