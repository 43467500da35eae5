// PolicyDriver: a cache's calls of its eviction policy, without the cache. Entries are handles with
// a weight; it gives out handles, evicts above the bound, and checks the duties of every policy.
// CountingMemory: a memory resource that counts, and that fails when it is told to.
#pragma once

#include <lumen/cache/eviction.h>

#include <gtest/gtest.h>

#include <memory_resource>
#include <new>
#include <vector>

namespace lumen::cache::test {

class CountingMemory final : public std::pmr::memory_resource {
 public:
  // The n-th allocation from now on fails, and every one after it; 0: none.
  void fail_at(size_t nth) { fails_at_ = nth == 0 ? 0 : calls_ + nth; }
  [[nodiscard]] size_t calls() const { return calls_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    ++calls_;
    if (fails_at_ != 0 && calls_ >= fails_at_) throw std::bad_alloc();
    bytes_ += bytes;
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* memory, size_t bytes, size_t alignment) override {
    bytes_ -= bytes;
    std::pmr::new_delete_resource()->deallocate(memory, bytes, alignment);
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }

  size_t calls_ = 0;
  size_t bytes_ = 0;
  size_t fails_at_ = 0;
};

// 64 well-mixed bits (splitmix64), as the cache gives them.
inline uint64_t hash_of(uint64_t key) {
  uint64_t x = key + 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

template <typename Policy>
class PolicyDriver {
 public:
  PolicyDriver(std::pmr::memory_resource* memory, uint64_t bound, size_t entries_hint = 0)
      : policy(memory, bound, entries_hint), bound_(bound) {}

  struct Entry {
    uint64_t key = 0;
    uint64_t weight = 0;
    bool is_live = false;
  };

  // Inserts and evicts until the bound is held. The keys that were evicted, in their order.
  std::vector<uint64_t> insert(uint64_t key, uint64_t weight = 1) {
    const Handle h = free_.empty() ? static_cast<Handle>(entries_.size()) : free_.back();
    policy.reserve(h);
    if (free_.empty()) {
      entries_.emplace_back();
    } else {
      free_.pop_back();
    }
    entries_[h] = {.key = key, .weight = weight, .is_live = true};
    weight_ += weight;
    ++live_;
    policy.inserted(h, hash_of(key), weight);
    return evict();
  }
  std::vector<uint64_t> reweigh(Handle h, uint64_t weight) {
    weight_ = weight_ - entries_[h].weight + weight;
    entries_[h].weight = weight;
    policy.reweighed(h, weight);
    return evict();
  }
  void use(uint64_t key) { policy.used(handle_of(key)); }
  void erase(Handle h) {
    ASSERT_TRUE(entries_.at(h).is_live);
    entries_[h].is_live = false;
    weight_ -= entries_[h].weight;
    --live_;
    free_.push_back(h);
    policy.erased(h);
  }
  // The calls of a cache of this bound for a request. True: a hit.
  bool ask(uint64_t key) {
    if (const Handle h = handle_of(key); h != kNoHandle) {
      policy.used(h);
      return true;
    }
    insert(key);
    return false;
  }

  [[nodiscard]] Handle handle_of(uint64_t key) const {
    for (Handle h = 0; h < entries_.size(); ++h) {
      if (entries_[h].is_live && entries_[h].key == key) return h;
    }
    return kNoHandle;
  }
  [[nodiscard]] bool holds(uint64_t key) const { return handle_of(key) != kNoHandle; }
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] uint64_t weight() const { return weight_; }
  [[nodiscard]] size_t live() const { return live_; }

  // Asks for victims until there is none; the keys in that order.
  std::vector<uint64_t> drain() {
    std::vector<uint64_t> keys;
    for (Handle h = policy.victim(); h != kNoHandle; h = policy.victim()) {
      if (h >= entries_.size() || !entries_[h].is_live) {
        ADD_FAILURE() << "victim " << h << " is no entry";
        break;
      }
      keys.push_back(entries_[h].key);
      erase(h);
    }
    return keys;
  }

  Policy policy;

 private:
  std::vector<uint64_t> evict() {
    std::vector<uint64_t> evicted;
    while (weight_ > bound_) {
      const Handle h = policy.victim();
      if (h >= entries_.size() || !entries_[h].is_live) {
        ADD_FAILURE() << "victim " << h << " is no entry, of " << live_;
        return evicted;
      }
      evicted.push_back(entries_[h].key);
      erase(h);
    }
    return evicted;
  }

  uint64_t bound_;
  std::vector<Entry> entries_;
  std::vector<Handle> free_;
  uint64_t weight_ = 0;
  size_t live_ = 0;
};

}  // namespace lumen::cache::test
