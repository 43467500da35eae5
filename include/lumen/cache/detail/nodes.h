// Nodes: the entries of a table that are held by pointer, and those that wait until no reader holds
// them.
// Threads: one at a time. Memory: a node an entry; of those taken out at most kBatch and two for
// each hazard slot wait, and the memory of as many is kept for the next.
// Errors: std::bad_alloc, and exceptions of K and V; nothing changed then.
#pragma once

#include <lumen/cache/detail/hazard.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <new>
#include <utility>
#include <vector>

namespace lumen::cache {

template <typename Node, bool kShared>
class Nodes {
 public:
  static constexpr size_t kBatch = 64;  // nodes that pay for one look at all hazards

  explicit Nodes(std::pmr::memory_resource* memory) : memory_(memory), waiting_(memory) {}
  ~Nodes() {
    for (Node* node : waiting_) free(node);  // no reader is left
    while (spare_ != nullptr) give_back(std::exchange(spare_, spare_->next));
  }
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  template <typename... Args>
  [[nodiscard]] Node* make(Args&&... args) {
    if constexpr (kShared) {
      // So that retire() never allocates: it must not throw.
      const size_t most = limit() + 1;
      if (waiting_.capacity() < most) waiting_.reserve(2 * most);
    }
    void* const place = take_place();
    try {
      return std::construct_at(static_cast<Node*>(place), std::forward<Args>(args)...);
    } catch (...) {
      keep_place(place);
      throw;
    }
  }
  // It is out of the table.
  void retire(Node* node) noexcept {
    if constexpr (kShared) {
      if (waiting_.size() >= limit() || waiting_.size() == waiting_.capacity()) free_unheld();
      waiting_.push_back(node);
    } else {
      free(node);
    }
  }
  // Frees one that no reader has ever seen.
  void free(Node* node) noexcept {
    std::destroy_at(node);
    keep_place(node);
  }
  // Of nodes that wait, and of memory that is kept for the next ones.
  [[nodiscard]] size_t bytes_waiting() const noexcept {
    return (waiting_.size() + spares_) * kPlaceBytes;
  }

 private:
  // The memory of a node that was freed: the next one takes it, without a call of the allocator.
  struct Spare {
    Spare* next;
  };
  static constexpr size_t kPlaceBytes = std::max(sizeof(Node), sizeof(Spare));
  static constexpr size_t kPlaceAlign = std::max(alignof(Node), alignof(Spare));

  [[nodiscard]] void* take_place() {
    if (spare_ == nullptr) return memory_->allocate(kPlaceBytes, kPlaceAlign);
    --spares_;
    return std::exchange(spare_, spare_->next);
  }
  void keep_place(void* place) noexcept {
    if (spares_ >= limit()) return give_back(place);
    ++spares_;
    spare_ = ::new (place) Spare{spare_};
  }
  void give_back(void* place) noexcept { memory_->deallocate(place, kPlaceBytes, kPlaceAlign); }
  [[nodiscard]] static size_t limit() noexcept {
    return kBatch + 2 * kHazardsAThread * HazardRecords::all().count();
  }
  // At least half of a full list: each hazard slot holds one node at most.
  void free_unheld() noexcept {
    const HazardRecords& records = HazardRecords::all();
    records.order_before_look();
    auto held_end = waiting_.begin();
    records.look_at_all([&](const void* held) {
      const auto found = std::find(held_end, waiting_.end(), held);
      if (found != waiting_.end()) std::iter_swap(held_end++, found);
    });
    std::for_each(held_end, waiting_.end(), [this](Node* node) { free(node); });
    waiting_.erase(held_end, waiting_.end());
  }

  std::pmr::memory_resource* memory_;
  std::pmr::vector<Node*> waiting_;
  Spare* spare_ = nullptr;
  size_t spares_ = 0;
};

}  // namespace lumen::cache
