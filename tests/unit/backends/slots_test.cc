// Slots: runs under way at once, who calls `done`, a failed run, the end. The instances of the
// slots are the test's own and wait at a gate.
#include "backends/slots.h"

#include "support/pending_request.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace lumen::backends {
namespace {

using models::InferRequest;
using models::PendingRequest;
using models::StartOutcome;

class Gate {
 public:
  void hold() {
    const std::lock_guard lock(mutex_);
    is_held_ = true;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    is_held_ = false;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++inside_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !is_held_; });
    --inside_;
  }
  void wait_for(uint32_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, count] { return inside_ == count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_held_ = false;
  uint32_t inside_ = 0;
};

struct World {
  Gate gate;
  std::atomic<uint32_t> runs{0};
  std::atomic<bool> was_shared{false};  // one instance ran twice at once
};

class GatedInstance final : public models::Instance {
 public:
  explicit GatedInstance(World& world) : world_(world) {}
  StartOutcome start(InferRequest& request, void (*)(InferRequest&) noexcept) noexcept override {
    if (is_running_.exchange(true)) world_.was_shared = true;
    world_.gate.pass();
    const bool fails = request.inputs[0].data[0] == std::byte{13};
    request.status = fails ? Status::error(Code::kInternal, "as the test wants") : Status();
    ++world_.runs;
    is_running_ = false;
    return StartOutcome::kDone;
  }

 private:
  World& world_;
  std::atomic<bool> is_running_{false};
};

std::unique_ptr<Slots> make_slots(World& world, size_t count) {
  std::vector<std::unique_ptr<models::Instance>> slots(count);
  for (auto& slot : slots) slot = std::make_unique<GatedInstance>(world);
  return std::make_unique<Slots>(std::move(slots));
}

std::unique_ptr<PendingRequest> request_of(uint8_t value) {
  auto pending = std::make_unique<PendingRequest>(nullptr);
  pending->add_input<uint8_t>(ElementType::kUint8, {1}, {value});
  return pending;
}

void done(InferRequest& request) noexcept { request.complete(request); }

TEST(Slots, HasAsManyRunsUnderWayAsSlotsAndDoesNotWaitForThem) {
  World world;
  const auto slots = make_slots(world, 4);
  EXPECT_EQ(slots->max_in_flight(), 4u);
  world.gate.hold();
  std::vector<std::unique_ptr<PendingRequest>> requests;
  for (uint8_t i = 0; i < 4; ++i) {
    requests.push_back(request_of(i));
    EXPECT_EQ(slots->start(requests.back()->request, done), StartOutcome::kPending);
  }
  world.gate.wait_for(4);
  for (const auto& one : requests) EXPECT_EQ(one->times_completed(), 0u);
  world.gate.release();
  for (const auto& one : requests) {
    one->wait();
    EXPECT_TRUE(one->request.status.ok());
  }
  EXPECT_FALSE(world.was_shared);
}

TEST(Slots, AFailedRunIsThatRequestsAloneAndItsSlotServesOn) {
  World world;
  const auto slots = make_slots(world, 1);
  for (const uint8_t value : std::array<uint8_t, 5>{1, 13, 2, 13, 3}) {
    const auto one = request_of(value);
    (void)slots->start(one->request, done);
    one->wait();
    EXPECT_EQ(one->request.status.ok(), value != 13);
  }
}

// The next request is started by the thread that completes the one before, as an engine may.
struct Chain {
  Slots* slots = nullptr;
  std::vector<std::unique_ptr<PendingRequest>> requests;
  std::atomic<size_t> next{0};
};
Chain* chain = nullptr;

void start_next(InferRequest& request) noexcept {
  request.complete(request);
  const size_t next = chain->next.fetch_add(1);
  if (next < chain->requests.size()) {
    (void)chain->slots->start(chain->requests[next]->request, start_next);
  }
}

TEST(Slots, DoneMayStartTheNextRun) {
  World world;
  const auto slots = make_slots(world, 2);
  Chain links{.slots = slots.get(), .requests = {}, .next = 2};
  for (int i = 0; i < 200; ++i) links.requests.push_back(request_of(1));
  chain = &links;
  for (size_t i = 0; i < 2; ++i) (void)slots->start(links.requests[i]->request, start_next);
  for (const auto& one : links.requests) one->wait();
  EXPECT_EQ(world.runs, 200u);
  EXPECT_FALSE(world.was_shared);
}

TEST(Slots, EndsAtOnceWhereNothingRuns) {
  World world;
  for (int i = 0; i < 100; ++i) (void)make_slots(world, 3);
  EXPECT_EQ(world.runs, 0u);
}

}  // namespace
}  // namespace lumen::backends
