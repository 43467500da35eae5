// Nodes: the entries of a table that are held by pointer, and those that wait until no reader holds
// them.
// Threads: one at a time. Memory: a node an entry; of those taken out at most kBatch and two for
// each hazard slot wait.
// Errors: std::bad_alloc, and exceptions of K and V; nothing changed then.
#pragma once

#include <lumen/cache/detail/hazard.h>

#include <algorithm>
#include <cstddef>
#include <memory_resource>
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
    return std::pmr::polymorphic_allocator<>(memory_).template new_object<Node>(
        std::forward<Args>(args)...);
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
  void free(Node* node) noexcept { std::pmr::polymorphic_allocator<>(memory_).delete_object(node); }
  [[nodiscard]] size_t bytes_waiting() const noexcept { return waiting_.size() * sizeof(Node); }

 private:
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
};

}  // namespace lumen::cache
