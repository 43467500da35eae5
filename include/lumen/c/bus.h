// The bus's C face, for any runtime that can call C; library lumen_c. Its behaviour stands in
// lumen/bus/publisher.h, subscriber.h and listener.h; the bytes in docs/formats/bus.md.
// Threads: a publisher and a subscriber belong to one thread at a time each; a listener to any.
// Memory: create, accept and connect allocate; data is read and written where it lies in shared
// memory.
// Errors: an enum; where a handle is wanted, NULL and a message for lumen_bus_free_message().
//
// Deadlines are nanoseconds of CLOCK_MONOTONIC: 0 has passed, UINT64_MAX never does.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LUMEN_BUS_VERSION 1

typedef struct lumen_bus_listener lumen_bus_listener;
typedef struct lumen_bus_connection lumen_bus_connection;
typedef struct lumen_bus_publisher lumen_bus_publisher;
typedef struct lumen_bus_subscriber lumen_bus_subscriber;

// The role of one side; the other side has the opposite role.
enum lumen_bus_role {
  LUMEN_BUS_PUBLISH = 1,
  LUMEN_BUS_SUBSCRIBE = 2,
  LUMEN_BUS_BOTH = 4,  // a ring each way
};

enum lumen_bus_outcome {
  LUMEN_BUS_OK = 0,
  LUMEN_BUS_NOT_NOW = 1,      // try_ only: no room, or no frame
  LUMEN_BUS_TIMED_OUT = 2,    // the deadline has passed
  LUMEN_BUS_TOO_LARGE = 3,    // larger than the ring
  LUMEN_BUS_INTERRUPTED = 4,  // a signal has ended the wait
  LUMEN_BUS_HELD = 5,         // nothing can come: the publisher waits for room that this side holds
  LUMEN_BUS_CLOSED = 6,       // closed by the other side, and nothing is left
  LUMEN_BUS_DIED = 7,         // the other side has died, and nothing is left
  LUMEN_BUS_DROPPED = 8,      // this subscriber held the ring for too long
  LUMEN_BUS_INVALID = 9,      // the other side has broken the protocol
  LUMEN_BUS_FORKED = 10,      // the handle belongs to the parent process
};

// Of a ring. Begin with lumen_bus_default_options().
typedef struct lumen_bus_options {
  size_t size;               // sizeof(lumen_bus_options), so that later versions may add to it
  enum lumen_bus_role role;  // of this side
  uint64_t capacity;         // bytes of payload: a power of two, 4 KiB to 1 GiB
  uint32_t slots;            // frames: a power of two; 0: a 64th of the capacity
  uint32_t max_connections;
} lumen_bus_options;
lumen_bus_options lumen_bus_default_options(enum lumen_bus_role role);

// A frame where it lies, valid until it is released.
typedef struct lumen_bus_frame {
  const void* data;  // starts at a multiple of 64
  size_t size;
  uint32_t type_id;
  uint64_t id;
} lumen_bus_frame;

const char* lumen_bus_outcome_name(enum lumen_bus_outcome outcome);
// Of a call that has returned NULL. `message` may be NULL there, and here.
void lumen_bus_free_message(char* message);

lumen_bus_listener* lumen_bus_listen(const char* path, const lumen_bus_options* options,
                                     char** message);
void lumen_bus_listener_close(lumen_bus_listener* listener);
// The next connection, or NULL: `outcome` says why.
lumen_bus_connection* lumen_bus_accept(lumen_bus_listener* listener, uint64_t deadline_ns,
                                       enum lumen_bus_outcome* outcome);
// Of a listener with LUMEN_BUS_PUBLISH, which has one publisher for all that connect. Its own.
lumen_bus_publisher* lumen_bus_listener_publisher(lumen_bus_listener* listener);

// `wait_for_listener`: until the deadline, where nobody listens yet.
lumen_bus_connection* lumen_bus_connect(const char* path, enum lumen_bus_role role,
                                        uint64_t deadline_ns, bool wait_for_listener,
                                        char** message);
void lumen_bus_close(lumen_bus_connection* connection);
// NULL where the connection's role has none. They belong to the connection.
lumen_bus_publisher* lumen_bus_connection_publisher(lumen_bus_connection* connection);
lumen_bus_subscriber* lumen_bus_connection_subscriber(lumen_bus_connection* connection);

// Room for a frame of `size` bytes, which commit takes; the next reserve without a commit gets the
// same.
enum lumen_bus_outcome lumen_bus_reserve(lumen_bus_publisher* publisher, size_t size,
                                         uint64_t deadline_ns, void** data);
void lumen_bus_commit(lumen_bus_publisher* publisher, size_t size, uint32_t type_id, uint64_t id);
// Subscribers see the committed frames.
void lumen_bus_flush(lumen_bus_publisher* publisher);
// Reserves, copies, commits and flushes.
enum lumen_bus_outcome lumen_bus_send(lumen_bus_publisher* publisher, const void* data, size_t size,
                                      uint32_t type_id, uint64_t id, uint64_t deadline_ns);
enum lumen_bus_outcome lumen_bus_wait_for_subscribers(lumen_bus_publisher* publisher, size_t count,
                                                      uint64_t deadline_ns);

// Until a frame is there.
enum lumen_bus_outcome lumen_bus_wait(lumen_bus_subscriber* subscriber, uint64_t deadline_ns);
// As many frames as are there, at most `most`; how many.
size_t lumen_bus_take(lumen_bus_subscriber* subscriber, lumen_bus_frame* frames, size_t most);
// Gives all that was taken back to the publisher.
void lumen_bus_release(lumen_bus_subscriber* subscriber);

#ifdef __cplusplus
}  // extern "C"
#endif
