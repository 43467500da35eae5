// A transport without a socket and without HTTP, as small as it can be: the proof that a call knows none.
// Its client puts numbers into a region that both map, names a slot, and finds the reply in the slot; one
// connection has 64 calls at work, which complete in any order, and some of which it cancels.
#include "unit/service/service_support.h"

#include <lumen/base/unique_fd.h>
#include <lumen/engine/engine.h>
#include <lumen/queue/mpmc_queue.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>
#include <vector>

namespace lumen::service {
namespace {

constexpr uint32_t kSlots = 64;

// What both sides map: a real memfd, so that inputs lie in memory that is shared.
class SharedRegion {
 public:
  struct Slot {
    alignas(64) std::array<float, 4> input;
    std::array<float, 4> reply;
  };
  SharedRegion() {
    const UniqueFd file(::memfd_create("lumen-test", MFD_CLOEXEC));
    LUMEN_CHECK(::ftruncate(file.get(), sizeof(Slot) * kSlots) == 0);
    void* memory =
        ::mmap(nullptr, sizeof(Slot) * kSlots, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    LUMEN_CHECK(memory != MAP_FAILED);
    slots_ = static_cast<Slot*>(memory);
  }
  ~SharedRegion() { ::munmap(slots_, sizeof(Slot) * kSlots); }
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;
  Slot& operator[](uint32_t slot) { return slots_[slot]; }

 private:
  Slot* slots_;
};

// Places for a reply's outputs inside a slot: the transport's own memory, not the call's.
class ReplyPlace final : public Allocator {
 public:
  explicit ReplyPlace(SharedRegion::Slot& slot) : slot_(slot) {}
  void* allocate(size_t bytes, size_t) noexcept override {
    return bytes <= sizeof(slot_.reply) ? slot_.reply.data() : nullptr;
  }

 private:
  SharedRegion::Slot& slot_;
};

class SlotTransport final : public CallOwner, public engine::CompletionSink {
 public:
  SlotTransport(SharedRegion& region, engine::Submitter& submitter) : submitter_(submitter) {
    for (uint32_t i = 0; i < kSlots; ++i) slots_.emplace_back(region[i]);
  }

  // The client's "slot N is ready".
  engine::SubmitOutcome on_slot_ready(uint32_t number, SharedRegion& region, engine::Model& model) {
    Slot& slot = slots_[number];
    slot.call = {.owner = this, .scratch = &slot.scratch, .reply_memory = &slot.reply_place};
    Binder binder(slot.call, model);
    auto* data = reinterpret_cast<std::byte*>(region[number].input.data());
    LUMEN_CHECK(binder
                    .input("x", tensor_of(ElementType::kFp32, {1, 4}, sizeof(float) * 4, data),
                           InputBytes::kShared)
                    .ok());
    LUMEN_CHECK(binder.inputs_named().ok() && inputs_arrived(slot.call).ok());
    return submit(slot.call, submitter_, *this);
  }
  void cancel(uint32_t number) { slots_[number].call.cancel(); }
  const Call& call(uint32_t number) const { return slots_[number].call; }
  uint32_t times_done(uint32_t number) const { return slots_[number].done.load(); }
  uint32_t times_encoded(uint32_t number) const { return slots_[number].encoded.load(); }

  // The order of the completions, once there are `count`.
  std::vector<uint32_t> wait_for(size_t count) {
    std::vector<uint32_t> order;
    for (uint32_t number = 0; order.size() < count;) {
      if (completed_.try_pop(number)) {
        order.push_back(number);
      } else {
        (void)submitter_.end_turn();  // with `inline` it is what runs the model
        std::this_thread::yield();
      }
    }
    return order;
  }

  void encode(Call& call) noexcept override { slot_of(call).encoded.fetch_add(1); }
  void on_done(Call& call) noexcept override {
    Slot& slot = slot_of(call);
    slot.done.fetch_add(1);
    LUMEN_CHECK(completed_.try_push(static_cast<uint32_t>(index_of(slot))));
  }
  void flush() noexcept override {}

 private:
  struct Slot {
    explicit Slot(SharedRegion::Slot& memory) : reply_place(memory) {}
    Call call;
    Arena scratch = make_arena(4096);
    ReplyPlace reply_place;
    std::atomic<uint32_t> done{0};
    std::atomic<uint32_t> encoded{0};
  };
  size_t index_of(const Slot& slot) const {
    size_t index = 0;
    while (&slots_[index] != &slot) ++index;
    return index;
  }
  Slot& slot_of(Call& call) {
    for (Slot& slot : slots_) {
      if (&slot.call == &call) return slot;
    }
    LUMEN_CHECK(false);
    return slots_.front();
  }

  engine::Submitter& submitter_;
  std::deque<Slot> slots_;
  MpmcQueue<uint32_t> completed_{kSlots};
};

class SecondTransport : public testing::TestWithParam<engine::QueueType> {
 protected:
  void start(uint32_t workers) {
    models.emplace(control);
    engine::EngineOptions options;
    options.config = {.queue_type = GetParam(), .thread_count = workers, .queue_capacity = 256};
    options.pin_threads.mode = PinThreads::Mode::kOff;
    options.server_counters = &models->counters->server;
    engine = std::move(engine::Engine::create(options, *models->repository).value());
    transport.emplace(region, engine->submitter(0));
    for (uint32_t i = 0; i < kSlots; ++i) {
      const auto value = static_cast<float>(i);
      region[i].input = {value, value + 1, value + 2, value + 3};
      region[i].reply.fill(-1);
    }
  }
  void submit_all() {
    for (uint32_t i = 0; i < kSlots; ++i) {
      ASSERT_EQ(transport->on_slot_ready(i, region, *models->model),
                engine::SubmitOutcome::kAccepted);
    }
  }
  void expect_reply(uint32_t slot) {
    const auto value = static_cast<float>(slot);
    EXPECT_THAT(region[slot].reply,
                testing::ElementsAre(value + 1, value + 2, value + 3, value + 4));
    EXPECT_TRUE(transport->call(slot).infer.status.ok());
    EXPECT_EQ(transport->times_encoded(slot), 1u);
  }

  SharedRegion region;
  std::shared_ptr<engine::FakeControl> control = std::make_shared<engine::FakeControl>();
  std::optional<OneModel> models;
  std::optional<SlotTransport> transport;
  std::unique_ptr<engine::Engine> engine;  // goes first: it completes what it has
};

TEST_P(SecondTransport, KeepsManyCallsOfOneConnectionAtWorkWhichCompleteInAnyOrder) {
  control->asynchronous = true;  // a device that completes out of order
  control->max_in_flight = 16;
  start(1);
  const uint64_t starts_before = control->starts.load();
  control->hold();
  submit_all();
  while (control->starts.load() < starts_before + control->max_in_flight) {
    engine->submitter(0).end_turn();
  }
  control->release();
  const std::vector<uint32_t> order = transport->wait_for(kSlots);
  EXPECT_FALSE(std::ranges::is_sorted(order)) << "seed " << control->seed;
  for (uint32_t i = 0; i < kSlots; ++i) {
    EXPECT_EQ(transport->times_done(i), 1u);
    expect_reply(i);
  }
}

TEST_P(SecondTransport, ACancelledCallIsNotRunAndItsNeighboursAre) {
  start(1);
  if (GetParam() != engine::QueueType::kInline) control->hold();
  submit_all();
  // A worker has taken some at most, as many as `batched` packs; the rest wait.
  constexpr uint32_t kFirstCancelled = 32;
  for (uint32_t i = kFirstCancelled; i < kSlots; i += 2) transport->cancel(i);
  control->release();
  engine->submitter(0).end_turn();
  (void)transport->wait_for(kSlots);
  for (uint32_t i = 0; i < kSlots; ++i) {
    EXPECT_EQ(transport->times_done(i), 1u);
    if (i < kFirstCancelled || i % 2 == 1) {
      expect_reply(i);
      continue;
    }
    EXPECT_EQ(transport->call(i).infer.status.code(), Code::kCancelled);
    EXPECT_EQ(transport->times_encoded(i), 0u);
    EXPECT_THAT(region[i].reply, testing::Each(-1.0f)) << "nothing was written for nobody";
  }
  EXPECT_EQ(models->counters->server.cancelled.get(), (kSlots - kFirstCancelled) / 2);
}

INSTANTIATE_TEST_SUITE_P(QueueTypes, SecondTransport,
                         testing::Values(engine::QueueType::kMpmc, engine::QueueType::kSpsc,
                                         engine::QueueType::kNaive, engine::QueueType::kBatched,
                                         engine::QueueType::kInline),
                         [](const auto& one) { return std::string(name_of(one.param)); });

}  // namespace
}  // namespace lumen::service
