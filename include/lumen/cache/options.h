// The options of a ChronoCache, and its figures.
// Threads: values. Memory: none. Errors: none.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>

namespace lumen::cache {

struct Options {
  size_t reserve_entries = 0;  // room made at construction: no allocation until that many are in
  // 0: no bound. A bound needs an eviction policy that keeps records. It is divided among the
  // shards, which are few for that reason (docs/cache/chrono_cache.md).
  size_t max_entries = 0;
  size_t max_weight = 0;  // the same in the unit of WeighWith (bytes, say)
  uint32_t shards = 0;    // Concurrent: a power of two; 0: by the number of CPUs
  std::chrono::nanoseconds tick = std::chrono::milliseconds(1);  // the unit of deadlines
  std::pmr::memory_resource* memory = nullptr;  // nullptr: pages that the cache maps itself
  bool huge_pages =
      false;  // advise them for pages of its own: quicker look-ups in a cache much larger than
              // the caches, up to half as much memory again unless entries are reserved
  int numa_node =
      -1;  // for pages of its own; -1: the first that touches them, or shards spread over all nodes
  std::optional<uint64_t> seed = std::nullopt;  // of the hash; nullopt: a random one
};

// Why a value has left the cache.
enum class Removal : uint8_t { kReplaced, kErased, kExpired, kEvicted, kCleared };

struct Stats {
  size_t entries = 0;      // live ones, as size() has them
  size_t reclaimable = 0;  // expired entries whose slots are not yet free
  size_t slots = 0;        // of all segments
  size_t segments = 0;
  size_t bytes_mapped =
      0;                  // address space, or memory that the resource has given; the difference to
                          // bytes_used has mostly never been touched
  size_t bytes_used = 0;  // segments, deadlines, directory, records
  size_t bytes_retired = 0;  // waits until readers cannot see it any more
  uint64_t evicted = 0;
  uint64_t expired = 0;
};

}  // namespace lumen::cache
