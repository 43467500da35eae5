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

// A change of a key while a value for it is being computed.
enum class Change : uint8_t { kErased, kPut };

template <typename K, typename V, typename Equal>
class Flights {
 public:
  struct Flight : FlightState {
    Flight(uint64_t its_hash, const K& its_key, bool stored_over)
        : hash(its_hash), key(its_key), overwrites(stored_over) {}
    const uint64_t hash;
    const K key;
    const bool overwrites;  // a value that is there when it lands
    bool stored = true;     // false: erase() or clear() came in between, or put() if it overwrites
    [[nodiscard]] bool is_kept_out_by(Change change) const noexcept {
      return change == Change::kErased || overwrites;
    }
    std::optional<V> value;
  };

  // look() answers from the cache; stale() does so while another flight is under way; compute()
  // makes the value; store(key, value) puts it, over another value if `overwrites`.
  template <typename Look, typename Stale, typename Compute, typename Store>
  [[nodiscard]] V run(uint64_t hash, const K& key, bool overwrites, Look&& look, Stale&& stale,
                      Compute&& compute, Store&& store) {
    std::unique_lock lock(mutex_);
    for (;;) {
      // Again, under the lock: the flight before may just have ended.
      if (std::optional<V> found = look()) return *std::move(found);
      const std::shared_ptr<Flight> other = find(hash, key);
      if (other == nullptr) break;
      if (std::optional<V> found = stale()) return *std::move(found);
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
    const auto mine = std::make_shared<Flight>(hash, key, overwrites);
    flights_.push_back(mine);
    // relaxed, both: the shard's lock orders an erase() or put() that comes later
    count_.fetch_add(1, std::memory_order_relaxed);
    if (overwrites) overwriting_.fetch_add(1, std::memory_order_relaxed);
    lock.unlock();
    return lead(*mine, std::forward<Compute>(compute), std::forward<Store>(store));
  }

  // The key is erased or put, so a value that is being computed for it is not stored. After a put
  // that concerns values which would overwrite; the others are not stored where there is one.
  template <typename Q>
  void keep_out(Change change, uint64_t hash, const Q& key) {
    if (none(change)) return;
    const std::lock_guard lock(mutex_);
    mark(change, hash, key);
  }
  // The same without waiting. False: another thread is at the flights.
  template <typename Q>
  [[nodiscard]] bool try_keep_out(Change change, uint64_t hash, const Q& key) {
    if (none(change)) return true;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) mark(change, hash, key);
    return lock.owns_lock();
  }
  void keep_all_out() {
    if (none(Change::kErased)) return;
    const std::lock_guard lock(mutex_);
    for (const auto& flight : flights_) flight->stored = false;
  }

 private:
  [[nodiscard]] bool none(Change change) const noexcept {
    const auto& count = change == Change::kErased ? count_ : overwriting_;
    return count.load(std::memory_order_relaxed) == 0;  // relaxed: as at its increment
  }
  template <typename Q>
  void mark(Change change, uint64_t hash, const Q& key) {
    for (const auto& flight : flights_) {
      if (flight->is_kept_out_by(change) && is_for(*flight, hash, key)) flight->stored = false;
    }
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
      K its_key(flight.key);  // copies without the lock: they may take long, and use the cache
      V its_value(value);
      flight.value = value;
      const std::lock_guard lock(mutex_);
      if (flight.stored) store(std::move(its_key), std::move(its_value));
      land(flight);
      return value;
    } catch (...) {
      const std::lock_guard lock(mutex_);
      flight.value.reset();
      land(flight);
      throw;
    }
  }
  void land(Flight& flight) noexcept {
    if (flight.over.load(std::memory_order_relaxed)) return;  // relaxed: as at the wait
    flight.over.store(true, std::memory_order_relaxed);
    std::erase_if(flights_, [&](const auto& one) { return one.get() == &flight; });
    count_.fetch_sub(1, std::memory_order_relaxed);  // relaxed: as at its increment
    if (flight.overwrites)
      overwriting_.fetch_sub(1, std::memory_order_relaxed);  // relaxed: the same
    landed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable landed_;
  std::vector<std::shared_ptr<Flight>> flights_;
  std::atomic<size_t> count_{0};
  std::atomic<size_t> overwriting_{0};  // of them
};

// Those of a OneThread cache: one inside the other, since compute() may ask again.
// Threads: one. Memory: none. Errors: those of compute().
template <typename K, typename V, typename Equal>
class NestedFlights {
 public:
  template <typename Look, typename Stale, typename Compute, typename Store>
  [[nodiscard]] V run(uint64_t hash, const K& key, bool overwrites, Look&&, Stale&&,
                      Compute&& compute, Store&& store) {
    Flight mine(*this, hash, key, overwrites);
    V value = std::forward<Compute>(compute)();
    if (mine.stored) store(K(key), V(value));
    return value;
  }
  template <typename Q>
  void keep_out(Change change, uint64_t hash, const Q& key) {
    for (Flight* flight = last_; flight != nullptr; flight = flight->outer) {
      const bool is_kept_out = change == Change::kErased || flight->overwrites;
      if (is_kept_out && flight->is_for(hash, key)) flight->stored = false;
    }
  }
  template <typename Q>
  [[nodiscard]] bool try_keep_out(Change change, uint64_t hash, const Q& key) {
    keep_out(change, hash, key);
    return true;
  }
  void keep_all_out() noexcept {
    for (Flight* flight = last_; flight != nullptr; flight = flight->outer) flight->stored = false;
  }

 private:
  struct Flight {
    Flight(NestedFlights& its_flights, uint64_t its_hash, const K& its_key, bool stored_over)
        : flights(its_flights),
          hash(its_hash),
          key(its_key),
          overwrites(stored_over),
          outer(std::exchange(its_flights.last_, this)) {}
    ~Flight() { flights.last_ = outer; }
    Flight(const Flight&) = delete;
    Flight& operator=(const Flight&) = delete;
    template <typename Q>
    [[nodiscard]] bool is_for(uint64_t its_hash, const Q& its_key) const {
      return hash == its_hash && Equal{}(key, its_key);
    }
    NestedFlights& flights;
    const uint64_t hash;
    const K& key;
    const bool overwrites;
    bool stored = true;
    Flight* const outer;
  };
  Flight* last_ = nullptr;
};

}  // namespace lumen::cache
