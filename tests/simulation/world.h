// One world: a whole server (I/O threads, engine, control thread, builders, a backend's device)
// with its clients, a live change now and then, and models that come and go.
// Threads: fibers, within run_world(). Memory: the heap. Errors: fail().
#pragma once

#include "support/temp_repository.h"

#include <cstdint>

namespace lumen::sim {

// The events of all worlds.
struct Sum {
  uint64_t worlds, histories, ok, refused, unanswered, switches, hash, cpu_us;
  uint64_t timeouts, cancelled, swaps, late, full, unavailable, late_heads, drained;
  uint64_t failures, swaps_failed, added, add_failed, removed, not_there;
  uint64_t reloaded, reload_failed;
  uint64_t compressed;
  uint64_t streams, calls, streams_refused;
  uint64_t ensembles, packed, memory_refused, most_kept_bytes;
  uint64_t parked, shared, shared_failures, promoted, abandoned;
  uint64_t sequence_replies, sequences_refused;
  uint64_t light_worlds, light_requests, light_waits;
  uint64_t wide_worlds, waited_for_room;
  uint64_t cache_worlds, cache_hits, cache_shared, cache_misses;
  uint64_t by_queue_type[6];
};

// The files that live() serves.
void write_models(const models::TempRepository& files);
void live(const models::TempRepository& files, Sum& sum);
// Of malloc's memory in use.
size_t heap_bytes();

}  // namespace lumen::sim
