// A transport without a socket and without HTTP, as small as it can be. Its client puts numbers
// into a region that both map, names a slot, and finds the reply in the slot; a connection has up
// to 64 calls at work.
// Threads: its own, but for encode() and on_returned(). Memory: the heap. Errors: LUMEN_CHECK.
#pragma once

#include "unit/service/service_support.h"

#include <lumen/base/unique_fd.h>
#include <lumen/engine/engine.h>
#include <lumen/queue/mpmc_queue.h>
#include <lumen/service/dispatcher.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace lumen::service {

inline constexpr uint32_t kSlots = 64;

// The mapping of both sides: a real memfd, so that inputs lie in memory that is shared.
class SlotMemory {
 public:
  struct Slot {
    alignas(64) std::array<float, 4> input;
    std::array<float, 4> reply;
  };
  SlotMemory() {
    const UniqueFd file(::memfd_create("lumen-test", MFD_CLOEXEC));
    LUMEN_CHECK(::ftruncate(file.get(), sizeof(Slot) * kSlots) == 0);
    void* memory =
        ::mmap(nullptr, sizeof(Slot) * kSlots, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    LUMEN_CHECK(memory != MAP_FAILED);
    slots_ = static_cast<Slot*>(memory);
  }
  ~SlotMemory() { ::munmap(slots_, sizeof(Slot) * kSlots); }
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;
  Slot& operator[](uint32_t slot) { return slots_[slot]; }

 private:
  Slot* slots_;
};

// Places for a reply's outputs inside a slot: the transport's own memory, not the call's.
class ReplyPlace final : public Allocator {
 public:
  ReplyPlace(SlotMemory::Slot& slot, const size_t& most) : slot_(slot), most_(most) {}
  void* allocate(size_t bytes, size_t) noexcept override {
    return bytes <= std::min(sizeof(slot_.reply), most_) ? slot_.reply.data() : nullptr;
  }

 private:
  SlotMemory::Slot& slot_;
  const size_t& most_;
};

class SlotTransport final : public CallOwner, public models::CompletionSink {
 public:
  SlotTransport(engine::Submitter& submitter, telemetry::Counters& all_counters,
                std::span<Step* const> steps = {})
      : counters(all_counters),
        dispatcher(steps, submitter, *this, counters),
        submitter_(submitter) {
    for (uint32_t i = 0; i < kSlots; ++i) {
      slots_.emplace_back(region[i], reply_room);
      region[i].reply.fill(-1);
    }
  }

  // The client's part: a row whose first number is `value`, in slot `number`, which is ready.
  bool send(uint32_t number, models::Model& model, float value, uint64_t deadline_ns = UINT64_MAX) {
    region[number].input = {value, value + 1, value + 2, value + 3};
    Slot& slot = slots_[number];
    slot.call.let_go_of_outputs();
    slot.scratch.reset();
    slot.call = {.owner = this,
                 .scratch = &slot.scratch,
                 .reply_memory = &slot.reply_place,
                 .reply_is_shared = true,
                 .cache_wishes = wishes,
                 .sequence = sequence};
    Binder binder(slot.call, model);
    auto* data = reinterpret_cast<std::byte*>(region[number].input.data());
    LUMEN_CHECK(binder
                    .input("x", tensor_of(ElementType::kFp32, {1, 4}, sizeof(float) * 4, data),
                           InputBytes::kShared)
                    .ok());
    LUMEN_CHECK(binder.inputs_named().ok() && inputs_arrived(slot.call).ok());
    slot.call.infer.deadline_ns = deadline_ns;
    while (slot.scratch.stats().used_bytes + scratch_left < 8192) {
      if (slot.scratch.allocate(8, 8) == nullptr) break;
    }
    return dispatcher.submit(slot.call);
  }
  // Its client has read the reply.
  void let_go(uint32_t number) { slots_[number].call.let_go_of_outputs(); }
  void cancel(uint32_t number) { dispatcher.cancel(slots_[number].call); }
  [[nodiscard]] const Call& call(uint32_t number) const { return slots_[number].call; }
  [[nodiscard]] Code code(uint32_t number) const { return call(number).infer.status.code(); }
  [[nodiscard]] uint32_t times_encoded(uint32_t number) const { return slots_[number].encoded; }

  // A turn of the thread. Calls that are complete are in `done`, in the order in which they were.
  void turn() {
    for (uint32_t number = 0; returned_.try_pop(number);) {
      if (dispatcher.take_back(slots_[number].call)) done.push_back(number);
    }
    (void)submitter_.end_turn();
  }

  void encode(Call& call) noexcept override { slot_of(call).encoded.fetch_add(1); }
  void on_returned(Call& call) noexcept override {
    LUMEN_CHECK(returned_.try_push(number_of(call)));
  }
  void wake() noexcept override { wakes.fetch_add(1); }

  CacheWishes wishes{};  // of the requests from now on
  wire::SequenceWishes sequence{};
  size_t reply_room = SIZE_MAX;  // bytes of an output, at most, that a slot takes
  size_t scratch_left = 8192;    // bytes of scratch memory, at most, that a step finds
  SlotMemory region;
  telemetry::CounterWriter counters;
  Dispatcher dispatcher;
  std::vector<uint32_t> done;
  std::atomic<uint32_t> wakes{0};

 private:
  struct Slot {
    Slot(SlotMemory::Slot& memory, const size_t& most) : reply_place(memory, most) {}
    Call call;
    Arena scratch = make_arena(8192);
    ReplyPlace reply_place;
    std::atomic<uint32_t> encoded{0};
  };
  uint32_t number_of(const Call& call) const {
    uint32_t number = 0;
    while (&slots_[number].call != &call) ++number;
    return number;
  }
  Slot& slot_of(const Call& call) { return slots_[number_of(call)]; }

  engine::Submitter& submitter_;
  std::deque<Slot> slots_;
  MpmcQueue<uint32_t> returned_{kSlots};
};

}  // namespace lumen::service
