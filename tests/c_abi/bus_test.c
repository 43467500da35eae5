/* The bus by its C face alone: a child publishes, this process subscribes. Any failure is a line and 1. */
#include <lumen/c/bus.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(condition)                                                \
  do {                                                                   \
    if (!(condition)) {                                                  \
      fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                           \
    }                                                                    \
  } while (0)

enum { kFrames = 1000, kType = 7 };

static void publish(const char* path) {
  char* message = NULL;
  lumen_bus_connection* connection =
      lumen_bus_connect(path, LUMEN_BUS_PUBLISH, UINT64_MAX, true, &message);
  EXPECT(connection != NULL);
  EXPECT(lumen_bus_connection_subscriber(connection) == NULL);
  lumen_bus_publisher* publisher = lumen_bus_connection_publisher(connection);
  for (uint64_t i = 0; i < kFrames; ++i) {
    void* data = NULL;
    EXPECT(lumen_bus_reserve(publisher, sizeof(i), UINT64_MAX, &data) == LUMEN_BUS_OK);
    memcpy(data, &i, sizeof(i));
    lumen_bus_commit(publisher, sizeof(i), kType, i);
    if (i % 10 == 9) lumen_bus_flush(publisher);
  }
  void* data = NULL;
  EXPECT(lumen_bus_reserve(publisher, 4097, 0, &data) == LUMEN_BUS_TOO_LARGE && data == NULL);
  EXPECT(lumen_bus_send(publisher, "end", 3, kType + 1, 0, UINT64_MAX) == LUMEN_BUS_OK);
  lumen_bus_close(connection);
}

/* Before the child is there: one that is quick has connected by the time of a first look. */
static void nobody_comes(const char* path) {
  char* message = NULL;
  lumen_bus_options options = lumen_bus_default_options(LUMEN_BUS_SUBSCRIBE);
  lumen_bus_listener* listener = lumen_bus_listen(path, &options, &message);
  EXPECT(listener != NULL);
  enum lumen_bus_outcome outcome = LUMEN_BUS_OK;
  EXPECT(lumen_bus_accept(listener, 0, &outcome) == NULL && outcome == LUMEN_BUS_TIMED_OUT);
  lumen_bus_listener_close(listener);
}

static void subscribe(lumen_bus_listener* listener) {
  enum lumen_bus_outcome outcome = LUMEN_BUS_OK;
  lumen_bus_connection* connection = lumen_bus_accept(listener, UINT64_MAX, &outcome);
  EXPECT(connection != NULL && outcome == LUMEN_BUS_OK);
  lumen_bus_subscriber* subscriber = lumen_bus_connection_subscriber(connection);
  uint64_t next = 0;
  int ended = 0;
  while (lumen_bus_wait(subscriber, UINT64_MAX) == LUMEN_BUS_OK) {
    lumen_bus_frame frames[16];
    const size_t count = lumen_bus_take(subscriber, frames, 16);
    for (size_t i = 0; i < count; ++i) {
      if (frames[i].type_id == kType) {
        uint64_t value = 0;
        EXPECT(frames[i].size == sizeof(value) && (uintptr_t)frames[i].data % 64 == 0);
        memcpy(&value, frames[i].data, sizeof(value));
        EXPECT(value == next && frames[i].id == next);
        ++next;
      } else {
        EXPECT(frames[i].size == 3 && memcmp(frames[i].data, "end", 3) == 0);
        ended = 1;
      }
    }
    lumen_bus_release(subscriber);
  }
  EXPECT(lumen_bus_wait(subscriber, UINT64_MAX) == LUMEN_BUS_CLOSED);
  EXPECT(next == kFrames && ended);
  lumen_bus_close(connection);
}

int main(void) {
  char folder[] = "/tmp/lumen-bus-c-XXXXXX";
  EXPECT(mkdtemp(folder) != NULL);
  char path[64];
  snprintf(path, sizeof(path), "%s/bus", folder);
  nobody_comes(path);
  const pid_t child = fork();
  if (child == 0) {
    publish(path);
    return 0;
  }
  char* message = NULL;
  lumen_bus_options options = lumen_bus_default_options(LUMEN_BUS_SUBSCRIBE);
  options.capacity = 5000;
  EXPECT(lumen_bus_listen(path, &options, &message) == NULL);
  EXPECT(message != NULL && strstr(message, "powers of two") != NULL);
  lumen_bus_free_message(message);
  options.capacity = 4096;
  lumen_bus_listener* listener = lumen_bus_listen(path, &options, &message);
  EXPECT(listener != NULL);
  subscribe(listener);
  lumen_bus_listener_close(listener);
  int status = 1;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  EXPECT(access(path, F_OK) != 0);
  EXPECT(rmdir(folder) == 0);
  EXPECT(strcmp(lumen_bus_outcome_name(LUMEN_BUS_TIMED_OUT), "timed out") == 0);
  return 0;
}
