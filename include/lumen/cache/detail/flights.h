// Flights: the computations of get_or_compute() that are under way, so that each key has one.
// Computations that ask for each other's keys never wait for each other for ever: the last to ask
// computes beside the flight that it would wait for.
// Threads: any. Memory: one flight a computation. Errors: std::bad_alloc; an exception of compute()
// goes to the caller that called it, and a thread that waits takes over.
#pragma once

#include <lumen/cache/detail/wait_graph.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace lumen::cache {

template <typename K, typename V, typename Equal>
class Flights {
 public:
  struct Flight : FlightState {
    Flight(uint64_t its_hash, const K& its_key) : hash(its_hash), key(its_key) {}
    const uint64_t hash;
    const K key;
    bool stored = true;  // false: erase() or clear() came in between
    std::optional<V> value;
  };

  // look() answers from the cache; compute() makes the value; store(value) puts it.
  template <typename Look, typename Compute, typename Store>
  [[nodiscard]] V run(uint64_t hash, const K& key, Look&& look, Compute&& compute, Store&& store) {
    std::unique_lock lock(mutex_);
    for (;;) {
      // Again, under the lock: the flight before may just have ended.
      if (std::optional<V> found = look()) return *std::move(found);
      const std::shared_ptr<Flight> other = find(hash, key);
      if (other == nullptr) break;
      if (is_led_here(hash, key)) {
        throw std::logic_error(
            "ChronoCache::get_or_compute: compute() asks for the key it computes");
      }
      const WaitEdge edge(*other);
      if (!edge.is_added()) break;
      // relaxed: it is set under the lock
      landed_.wait(lock, [&] { return other->over.load(std::memory_order_relaxed); });
      if (other->value) return *other->value;
    }
    const auto mine = std::make_shared<Flight>(hash, key);
    flights_.push_back(mine);
    // relaxed: the shard's lock orders an erase() that comes later
    count_.fetch_add(1, std::memory_order_relaxed);
    lock.unlock();
    return lead(*mine, std::forward<Compute>(compute), std::forward<Store>(store));
  }

  // Values that are being computed for that key, or for all keys, are not stored.
  template <typename Q>
  void forget(uint64_t hash, const Q& key) {
    if (none()) return;
    const std::lock_guard lock(mutex_);
    for (const auto& flight : flights_) {
      if (is_for(*flight, hash, key)) flight->stored = false;
    }
  }
  void forget_all() {
    if (none()) return;
    const std::lock_guard lock(mutex_);
    for (const auto& flight : flights_) flight->stored = false;
  }

 private:
  [[nodiscard]] bool none() const noexcept {
    return count_.load(std::memory_order_relaxed) == 0;  // relaxed: as at its increment
  }
  template <typename Q>
  [[nodiscard]] static bool is_for(const Flight& flight, uint64_t hash, const Q& key) {
    return flight.hash == hash && Equal{}(flight.key, key);
  }
  // The first one, where a circle has made more of them.
  [[nodiscard]] std::shared_ptr<Flight> find(uint64_t hash, const K& key) const {
    for (const auto& flight : flights_) {
      if (is_for(*flight, hash, key)) return flight;
    }
    return nullptr;
  }
  [[nodiscard]] bool is_led_here(uint64_t hash, const K& key) const {
    return std::ranges::any_of(flights_, [&](const auto& flight) {
      return flight->leader == std::this_thread::get_id() && is_for(*flight, hash, key);
    });
  }
  template <typename Compute, typename Store>
  [[nodiscard]] V lead(Flight& flight, Compute&& compute, Store&& store) {
    try {
      V value = std::forward<Compute>(compute)();
      const std::lock_guard lock(mutex_);
      if (flight.stored) store(value);
      flight.value = value;
      land(flight);
      return value;
    } catch (...) {
      const std::lock_guard lock(mutex_);
      land(flight);
      throw;
    }
  }
  void land(Flight& flight) noexcept {
    if (flight.over.load(std::memory_order_relaxed)) return;  // relaxed: as at the wait
    flight.over.store(true, std::memory_order_relaxed);
    std::erase_if(flights_, [&](const auto& one) { return one.get() == &flight; });
    count_.fetch_sub(1, std::memory_order_relaxed);  // relaxed: as at its increment
    landed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable landed_;
  std::vector<std::shared_ptr<Flight>> flights_;
  std::atomic<size_t> count_{0};
};

}  // namespace lumen::cache
