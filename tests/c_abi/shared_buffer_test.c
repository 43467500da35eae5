/* The C face of SharedBuffer from C11: two threads write into our memory, the callback reads it.
 * Threads: two writers. Memory: static. Errors: exit 1 and a line on stderr. */
#include <lumen/c/shared_buffer.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);         \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

enum { kThreads = 2, kRecords = 50000, kBufferBytes = 4096, kBuffers = 4 };

typedef struct record {
  uint32_t thread;
  uint32_t number;
} record;

static _Alignas(64) unsigned char memory[kBufferBytes * kBuffers];
static uint32_t next_number[kThreads];
static uint64_t buffers;

static void flush(void* context, const lumen_sb_flushed* flushed) {
  CHECK(context == &buffers);
  CHECK(flushed->sequence == buffers++);
  CHECK(flushed->missing_bytes == 0 && flushed->hole_count == 0 && flushed->forced == 0);
  const unsigned char* data = flushed->data;
  CHECK(data >= memory && data + flushed->bytes <= memory + sizeof(memory));
  for (size_t run = 0; run < flushed->record_runs; ++run) {
    const lumen_sb_extent extent = flushed->records[run];
    for (size_t at = 0; at < extent.bytes; at += sizeof(record)) {
      record r;
      memcpy(&r, data + extent.begin + at, sizeof(r));
      CHECK(r.thread < kThreads);
      CHECK(r.number == next_number[r.thread]++);
    }
  }
}

typedef struct job {
  lumen_sb* buffer;
  uint32_t thread;
} job;

static void* write_records(void* argument) {
  const job* j = argument;
  lumen_sb_writer* writer = lumen_sb_attach(j->buffer, NULL, 0);
  CHECK(writer != NULL);
  for (uint32_t i = 0; i < kRecords; ++i) {
    const record r = {j->thread, i};
    void* place = lumen_sb_reserve(writer, sizeof(r));
    CHECK(place != NULL);
    memcpy(place, &r, sizeof(r));
    lumen_sb_commit(writer);
  }
  CHECK(lumen_sb_reserve(writer, kBufferBytes + 1) == NULL);
  CHECK(lumen_sb_why(writer) == LUMEN_SB_TOO_LARGE);
  lumen_sb_detach(writer);
  return NULL;
}

static void run(uint32_t mode) {
  lumen_sb_options options = lumen_sb_default_options();
  options.mode = mode;
  options.buffer_bytes = kBufferBytes;
  options.buffer_count = kBuffers;
  options.chunk_bytes = 256;
  options.flush = flush;
  options.context = &buffers;
  char error[200] = "";
  CHECK(lumen_sb_create(&options, memory, sizeof(memory) - 1, error, sizeof(error)) == NULL);
  CHECK(strstr(error, "16383 bytes of memory") != NULL);
  options.version = 99;
  CHECK(lumen_sb_create(&options, memory, sizeof(memory), error, 10) == NULL);
  CHECK(strcmp(error, "lumen_sb_") == 0);
  options.version = LUMEN_SB_VERSION;
  lumen_sb* buffer = lumen_sb_create(&options, memory, sizeof(memory), error, sizeof(error));
  CHECK(buffer != NULL);
  buffers = 0;
  memset(next_number, 0, sizeof(next_number));
  pthread_t threads[kThreads];
  job jobs[kThreads];
  for (uint32_t t = 0; t < kThreads; ++t) {
    jobs[t] = (job){buffer, t};
    CHECK(pthread_create(&threads[t], NULL, write_records, &jobs[t]) == 0);
  }
  for (uint32_t t = 0; t < kThreads; ++t) CHECK(pthread_join(threads[t], NULL) == 0);
  CHECK(lumen_sb_flush(buffer, 10000000000u));
  const lumen_sb_statistics statistics = lumen_sb_get_statistics(buffer);
  CHECK(statistics.buffers_flushed == buffers && statistics.dropped_records == 0);
  CHECK(statistics.bytes_flushed - statistics.wasted_bytes ==
        (uint64_t)kThreads * kRecords * sizeof(record));
  lumen_sb_destroy(buffer);
  for (int t = 0; t < kThreads; ++t) CHECK(next_number[t] == kRecords);
}

int main(void) {
  run(LUMEN_SB_DENSE);
  run(LUMEN_SB_CHUNKED);
  return 0;
}
