// SharedBuffer's C face, for any runtime that owns raw memory and can call C; library lumen_c.
// lumen/memory/shared_buffer.h says how it behaves, also if a thread dies half-way.
// Threads: as in C++: a writer belongs to the thread that attached it, the rest is for any thread.
// Memory: create and attach allocate a few KiB of bookkeeping; records live in the caller's memory.
// Errors: NULL or 0, with a reason where a reason fits.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LUMEN_SB_VERSION 1

typedef struct lumen_sb lumen_sb;
typedef struct lumen_sb_writer lumen_sb_writer;

enum lumen_sb_mode { LUMEN_SB_DENSE = 0, LUMEN_SB_CHUNKED = 1 };
enum lumen_sb_when_full { LUMEN_SB_WAIT = 0, LUMEN_SB_DROP = 1 };
enum lumen_sb_refusal {
  LUMEN_SB_NONE = 0,
  LUMEN_SB_TOO_LARGE = 1,
  LUMEN_SB_DROPPED = 2,
  LUMEN_SB_CLOSED = 3
};

// A run of committed records, in bytes from `data`.
typedef struct lumen_sb_extent {
  size_t begin;
  size_t bytes;
} lumen_sb_extent;

// A reservation that was not committed in time.
typedef struct lumen_sb_hole {
  size_t begin;
  size_t bytes;
  int32_t thread_id;
  bool thread_gone;
} lumen_sb_hole;

typedef struct lumen_sb_flushed {
  uint64_t sequence;  // 0, 1, 2, ... without a gap
  const void* data;
  size_t bytes;
  const lumen_sb_extent* records;
  size_t record_runs;
  const lumen_sb_hole* holes;
  size_t hole_count;
  size_t missing_bytes;  // 0, unless a thread was held up or died before its commit
  uint32_t forced;
} lumen_sb_flushed;

// Called by one thread at a time; `flushed` and its memory are valid until it returns. It must not
// reserve in the same buffer under LUMEN_SB_WAIT, and must return: no longjmp, no exception.
typedef void (*lumen_sb_flush_function)(void* context, const lumen_sb_flushed* flushed);

typedef struct lumen_sb_options {
  uint32_t version;  // LUMEN_SB_VERSION
  uint32_t mode;
  uint32_t when_full;
  // 1: the thread that fills a buffer flushes it; 0: a thread in run_flusher().
  uint32_t flush_by_writers;
  size_t buffer_bytes;
  size_t buffer_count;        // a power of two, 2 to 16
  size_t max_writers;         // 1 to 256
  size_t chunk_bytes;         // chunked mode: divides buffer_bytes
  uint64_t stall_timeout_ns;  // 0: wait for ever for a commit
  lumen_sb_flush_function flush;
  void* context;
} lumen_sb_options;

typedef struct lumen_sb_statistics {
  uint64_t buffers_flushed;
  uint64_t bytes_flushed;
  uint64_t wasted_bytes;
  uint64_t missing_bytes;
  uint64_t incomplete_buffers;
  uint64_t abandoned_records;
  uint64_t dropped_records;
  uint64_t dropped_bytes;
  uint64_t waits;
  uint64_t quarantined_buffers;
  uint64_t writers;
} lumen_sb_statistics;

// 1 MiB x 4, dense, waiting, flushed by writers, 64 writers, 1 s; `flush` is left for the caller.
lumen_sb_options lumen_sb_default_options(void);

// Over `memory` of at least buffer_bytes * buffer_count bytes, which outlives the buffer and does
// not move; NULL: memory of its own. NULL on failure, with the reason in `error` (may be NULL).
lumen_sb* lumen_sb_create(const lumen_sb_options* options, void* memory, size_t memory_bytes,
                          char* error, size_t error_bytes);
// Closes, flushes, frees. All writers are detached by then.
void lumen_sb_destroy(lumen_sb* buffer);

// A handle for the calling thread. NULL on failure, as above.
lumen_sb_writer* lumen_sb_attach(lumen_sb* buffer, char* error, size_t error_bytes);
// A record that is still open is handed over as zeroes.
void lumen_sb_detach(lumen_sb_writer* writer);

// Memory for one record; NULL: lumen_sb_why() says why. try_reserve never waits and drops nothing.
void* lumen_sb_reserve(lumen_sb_writer* writer, size_t bytes);
void* lumen_sb_try_reserve(lumen_sb_writer* writer, size_t bytes);
// The record of the latest reserve is written.
void lumen_sb_commit(lumen_sb_writer* writer);
// An enum lumen_sb_refusal.
uint32_t lumen_sb_why(const lumen_sb_writer* writer);

// Sends the reserved places to the flusher.
void lumen_sb_seal(lumen_sb* buffer);
// Hands over complete and overdue buffers; how many.
size_t lumen_sb_flush_ready(lumen_sb* buffer);
// seal, then waits until all of it was handed over. False: not within `timeout_ns`.
bool lumen_sb_flush(lumen_sb* buffer, uint64_t timeout_ns);
// The body of a flusher thread: returns after close.
void lumen_sb_run_flusher(lumen_sb* buffer);
// seal for good: reserve refuses from now on.
void lumen_sb_close(lumen_sb* buffer);
lumen_sb_statistics lumen_sb_get_statistics(const lumen_sb* buffer);

#ifdef __cplusplus
}
#endif
