// Regressions of the queue type `inline`: wake-ups that its threads lost, and a change or an end
// that waited for a thread that was gone. A hang here is the test's time limit.
// Threads: the test's, an I/O thread in small, the fake device's. Memory: the heap. Errors: by
// gtest.
#include <lumen/engine/engine.h>

#include "support/engine_turns.h"
#include "support/fake_backend.h"
#include "support/pending_request.h"
#include "support/temp_repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace lumen::engine {
namespace {

using testing::Each;

class InlineTest : public testing::Test {
 protected:
  void start(uint32_t submitters) {
    files_.add_model("m");
    repository_ = std::move(models::ModelRepository::open(
                                files_.path(), models::make_fake_backend(control_), *counters_)
                                .value());
    EngineOptions options;
    options.config.queue_type = models::QueueType::kInline;
    options.config.batch_size = 1;
    options.submitter_count = submitters;
    options.pin_threads.mode = PinThreads::Mode::kOff;
    engine_ = std::move(Engine::create(options, *repository_).value());
    for (uint32_t i = 0; i < submitters; ++i) {
      turns_.push_back(std::make_unique<EngineTurns>(engine_->submitter(i)));
    }
  }
  void TearDown() override {
    control_->release();
    for (const auto& one : turns_) one->leave();
    engine_.reset();
    turns_.clear();
  }
  models::PendingRequest& make() {
    all_.push_back(std::make_unique<models::PendingRequest>(repository_->find("m", ""), 4096));
    all_.back()->add_input<float>(ElementType::kFp32, {1, 4}, {1, 1, 1, 1});
    return *all_.back();
  }
  void submit(uint32_t submitter, models::PendingRequest& pending) {
    EXPECT_EQ(engine_->submitter(submitter).submit(pending.request), SubmitOutcome::kAccepted);
  }
  std::thread change_to_mpmc() {
    return std::thread([this] {
      EXPECT_TRUE(engine_->reconfigure({.queue_type = models::QueueType::kMpmc}).ok());
    });
  }
  // A request whose device thread is held after it was completed, and before the runner knows that
  // it has room again: where a preemption of 300 ms made the fault show.
  models::PendingRequest& complete_and_hold() {
    models::PendingRequest& pending = make();
    pending.request.sink = &sink_;
    device_.close();
    sink_.after = [this] { device_.pass(); };
    turns_[0]->post([this, &pending] { submit(0, pending); });
    pending.wait();
    device_.wait_until_held();
    return pending;
  }
  // Until the thread `id` of this process sleeps in the kernel.
  static void wait_until_asleep(int id) {
    char state = 'R';
    while (state != 'S') {
      std::ifstream file("/proc/self/task/" + std::to_string(id) + "/stat");
      std::string number, name;
      file >> number >> name >> state;
    }
  }

  models::TempRepository files_;
  std::shared_ptr<models::FakeControl> control_ = std::make_shared<models::FakeControl>();
  std::unique_ptr<telemetry::Counters> counters_ = std::make_unique<telemetry::Counters>();
  std::unique_ptr<models::ModelRepository> repository_;
  std::vector<std::unique_ptr<models::PendingRequest>> all_;
  TestSink sink_;
  Gate device_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<EngineTurns>> turns_;
};

// --- wake-ups ------------------------------------------------------------------------------------

// Was: the wake-up found the loop awake and did nothing, and the loop slept on the requests that it
// was to run. The change waited for ever; under SIGHUP that was the main thread, which then saw no
// SIGTERM either.
TEST_F(InlineTest, AChangeWhoseWakeComesAfterTheTurnAndBeforeTheSleepEnds) {
  start(2);
  // Submitter 0's request holds the change back until submitter 1 is where the test wants it.
  submit(0, make());
  submit(1, make());
  std::thread change = change_to_mpmc();
  turns_[0]->wake_sink.wait_for(1);
  turns_[1]->before_sleep.close();
  turns_[1]->start();
  turns_[1]->post([] {});  // a turn that finds nothing to retire yet
  turns_[1]->before_sleep.wait_until_held();
  turns_[0]->start();
  turns_[0]->post([] {});
  turns_[1]->wake_sink.wait_for(1);
  turns_[1]->before_sleep.open();
  change.join();
  for (const auto& one : all_) EXPECT_THAT(one->output<float>(0), Each(2));
}

// Was: the word that there is room again came while the loop was awake, and was lost the same way.
TEST_F(InlineTest, RoomThatIsMadeAfterTheTurnAndBeforeTheSleepIsUsed) {
  control_->asynchronous = true;
  start(1);
  turns_[0]->start();
  (void)complete_and_hold();
  models::PendingRequest& waits = make();
  turns_[0]->before_sleep.close();
  turns_[0]->post([this, &waits] { submit(0, waits); });
  turns_[0]->before_sleep.wait_until_held();
  device_.open();
  turns_[0]->wake_sink.wait_for(1);
  turns_[0]->before_sleep.open();
  waits.wait();
  EXPECT_TRUE(waits.request.status.ok());
}

// --- a thread that leaves ------------------------------------------------------------------------

// Was: the reply was out and the I/O thread gone, but the callback had not come to its end; the
// drain waited for that thread.
TEST_F(InlineTest, ADrainWaitsForACallbackAndNotForTheThreadThatHasLeft) {
  control_->asynchronous = true;
  start(1);
  turns_[0]->start();
  (void)complete_and_hold();
  turns_[0]->leave();
  std::atomic<int> drain_thread{0};
  std::thread drain([&] {
    drain_thread.store(::gettid());
    engine_->drain();
  });
  while (drain_thread.load() == 0) std::this_thread::yield();
  wait_until_asleep(drain_thread.load());
  device_.open();
  drain.join();
}

TEST_F(InlineTest, AChangeTakesOverFromAThreadThatLeavesMeanwhile) {
  control_->asynchronous = true;
  start(1);
  turns_[0]->start();
  control_->hold();
  models::PendingRequest& on_device = make();
  models::PendingRequest& waits = make();
  turns_[0]->post([&] {
    submit(0, on_device);
    submit(0, waits);
  });
  control_->wait_until_held(1);
  std::thread change = change_to_mpmc();
  turns_[0]->wake_sink.wait_for(1);
  turns_[0]->leave();
  EXPECT_EQ(waits.times_completed(), 0u);
  control_->release();
  change.join();
  EXPECT_TRUE(on_device.request.status.ok());
  EXPECT_TRUE(waits.request.status.ok());
  EXPECT_EQ(waits.times_completed(), 1u);
}

TEST_F(InlineTest, RequestsThatAThreadHasLeftAreRunByTheDrain) {
  start(1);
  models::PendingRequest& left = make();
  submit(0, left);
  engine_->submitter(0).close();
  engine_->drain();
  EXPECT_EQ(left.times_completed(), 1u);
  EXPECT_THAT(left.output<float>(0), Each(2));
}

// --- the order of replies ------------------------------------------------------------------------

TEST_F(InlineTest, EachCallOfAModelIsATurnsEndOfItsOwn) {
  start(1);
  for (int i = 0; i < 3; ++i) submit(0, make());
  for (uint32_t done = 1; done <= 3; ++done) {
    EXPECT_EQ(engine_->submitter(0).end_turn(), 1u);
    uint32_t completed = 0;
    for (const auto& one : all_) completed += one->times_completed();
    EXPECT_EQ(completed, done);
  }
  EXPECT_EQ(engine_->submitter(0).end_turn(), 0u);
}

}  // namespace
}  // namespace lumen::engine
