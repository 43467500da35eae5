// ModelQueues: a bounded ring of requests for each model, and the choice among those that have
// some. The queues of the types mpmc and batched.
//
//   bits_   [class 0: a bit a model] [class 1 ...]     may have work; without its bit it has none
//   queues_  [model] -> its rings, one a class, and how many wait in all of them
//
// A class keeps apart requests that are not taken in the order of arrival, since a ring gives its
// requests in the order in which they came: the priorities, the first of which has to be empty
// before the second is looked at; and with the policy `deadline`, within a priority, how long the
// requests may wait.
//
// A queue may be for some workers only: each has a mask of the models that it may take, and neither
// looks at the others' bits nor clears them. Of several such workers one may look, and go to sleep,
// while another has cleared the bit and not yet set it again; its bell was rung before that, and
// the worker that takes the first request does not count this one. So the one that sets the bit
// again rings all of them.
//
// A bit says "look here" and may be set for an empty ring: it is cleared only by a worker that is
// about to sleep, so that a model in steady use costs nobody a write to the words of bits. So:
//
//   tidy(), before a worker announces its sleep        push(), then announce()
//     the ring is empty? clear its bit                   the request is published
//     look at the ring once more: not empty, set it      (the bit is seen clear: set it)
//       and wake the others, if the queue is for some     announce(): set the bit in any case
//
// Invariant: after its submitter's announce() a request that can be taken has its bit set, or a
// worker in tidy() is about to set it, and then looks itself. Both steps are read-modify-writes of
// one word: if announce() comes first, tidy()'s second look sees the request; if it comes second
// the bit is set. tests/spin/model_queues.pml proves it, with the sleep of sleepers.h around it,
// pinned_model_queues.pml that of queues for some workers.
//
// Threads: add() on the control plane, one at a time; the others any. Memory: of each model at
// add(), kept for whichever has its index later. Errors: push() is false when the ring of its class
// is full.
#pragma once

#include "engine/fair_shares.h"
#include "engine/request_ring.h"

#include <lumen/base/cache_line.h>
#include <lumen/base/limits.h>
#include <lumen/engine/engine_config.h>
#include <lumen/models/model_repository.h>
#include <lumen/models/model_scheduling.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace lumen::engine {

class ModelQueues {
  static constexpr size_t kWordsOfAClass = limits::kMaxModels / 64;

 public:
  static constexpr uint32_t kDeadlineClasses = 4;
  static constexpr uint32_t kMostClasses = models::kPriorities * kDeadlineClasses;
  // A bit a worker; none: any worker.
  using WorkerSet = std::array<uint64_t, limits::kMaxWorkers / 64>;
  // A submitter's own: its pushes since its last announce().
  struct alignas(kFalseSharingRange) Pushed {
    uint32_t for_any = 0;  // requests that any worker may take
    WorkerSet some{};      // workers that alone may take the others
    bool has_some = false;
    std::array<uint64_t, kMostClasses * kWordsOfAClass> bits{};
  };

  ModelQueues(Policy policy, size_t capacity, uint32_t workers)
      : policy_(policy), capacity_(capacity), may_take_(workers) {}

  // No request of the model can come meanwhile. `workers`: those that may take them; empty: all.
  void add(const models::Model& model, std::span<const uint32_t> workers);
  [[nodiscard]] FairShares& shares() noexcept { return shares_; }

  // A guess, for a request that asks for no priority; of `deadline` whether any class of it has
  // room.
  [[nodiscard]] bool has_room(const models::Model& model) const noexcept;
  [[nodiscard]] bool push(models::InferRequest& request, Pushed& pushed) noexcept;
  // Before the submitter wakes a thread for its pushes.
  void announce(Pushed& pushed) noexcept;
  // No submitter comes any more, and some may have left without announce(). The caller has seen all
  // pushes.
  void announce_all() noexcept;

  // The next for that worker by priority and policy; nullptr: nothing there.
  [[nodiscard]] models::InferRequest* try_pop(uint32_t worker) noexcept;
  // The next of the same model, to be run with it.
  [[nodiscard]] models::InferRequest* try_pop_like(const models::InferRequest& request) noexcept;
  // Clears the bits of empty rings that the worker may take from. Before its sleep is announced.
  // Returns the workers that are to be woken, since they may have looked while a bit was clear for
  // a request that they alone may take.
  [[nodiscard]] WorkerSet tidy(uint32_t worker) noexcept;
  // Racy: whether there is nothing for that worker.
  [[nodiscard]] bool was_empty(uint32_t worker) const noexcept;
  // Racy: requests that any worker may take.
  [[nodiscard]] size_t size_was() const noexcept;

 private:
  struct Queue {
    Queue(size_t capacity, uint32_t classes) {
      for (uint32_t i = 0; i < classes; ++i)
        rings.push_back(std::make_unique<RequestRing>(capacity));
    }
    std::vector<std::unique_ptr<RequestRing>> rings;
    WorkerSet workers{};
    bool is_for_any = true;
  };
  struct Place {
    uint32_t model;
    uint32_t class_index;
    [[nodiscard]] size_t word() const noexcept { return class_index * kWordsOfAClass + model / 64; }
    [[nodiscard]] uint64_t mask() const noexcept { return uint64_t{1} << (model % 64); }
  };
  using ModelMask = std::array<std::atomic<uint64_t>, kWordsOfAClass>;
  // Rings that try_pop() found without a request that it could take.
  struct Tried {
    void add(Place place) noexcept {
      if (!std::exchange(is_used, true)) bits.fill(0);
      bits[place.word()] |= place.mask();
    }
    [[nodiscard]] bool has(Place place) const noexcept {
      return is_used && (bits[place.word()] & place.mask()) != 0;
    }
    bool is_used = false;
    std::array<uint64_t, kMostClasses * kWordsOfAClass> bits;  // once it is used: it hardly ever is
  };
  // Calls visit(place, ring) for each ring of the models of `mask` whose bit is set, the first
  // priority first, until that returns false.
  template <typename Visit>
  void for_each_marked(const ModelMask& mask, Visit&& visit) const noexcept;
  [[nodiscard]] std::optional<Place> choose(uint32_t worker, const Tried& tried) const noexcept;
  static void set(ModelMask& mask, uint32_t model, bool value) noexcept;
  [[nodiscard]] Queue& queue_of(uint32_t model) const noexcept {
    // sync[model_queues.queue]: acquire; pairs with add()
    return *queues_[model].load(std::memory_order_acquire);
  }
  [[nodiscard]] uint32_t classes_of_a_priority() const noexcept {
    return policy_ == Policy::kDeadline ? kDeadlineClasses : 1;
  }
  [[nodiscard]] uint32_t classes() const noexcept {
    return models::kPriorities * classes_of_a_priority();
  }
  [[nodiscard]] Place place_of(const models::InferRequest& request) const noexcept;
  [[nodiscard]] uint64_t key_of(const models::InferRequest& request) const noexcept;
  [[nodiscard]] FairShares::Start rank_of(Place place, const RequestRing& ring) const noexcept;
  [[nodiscard]] models::InferRequest* take_from(uint32_t model, uint32_t class_index) noexcept;

  const Policy policy_;
  const size_t capacity_;
  FairShares shares_;
  std::array<std::atomic<Queue*>, limits::kMaxModels> queues_{};
  std::vector<std::unique_ptr<Queue>> owned_;  // the control plane's
  std::vector<ModelMask> may_take_;            // by each worker
  ModelMask for_any_{};                        // by all of them
  std::atomic<uint32_t> words_{0};             // of a class, that hold a model
  alignas(
      kFalseSharingRange) std::array<std::atomic<uint64_t>, kMostClasses * kWordsOfAClass> bits_{};
};

}  // namespace lumen::engine
