/* expect: pass; with -DBROKEN_LAST_LOOK: fail; with -DBROKEN_NO_SECOND_LOOK: fail; with -DBROKEN_SECOND_LOOK_FIRST: fail; with -DBROKEN_NOTHING_RESERVED: fail
 *
 * A client's connection inside the event loop of an I/O thread (src/transports/shm/bus_connection.cc: before_sleep(),
 * after_sleep(), take_requests(); src/transports/shm/bus_connection_reply.cc: has_reply_room(), on_returned();
 * src/net/epoll_loop.cc and src/net/uring_loop.cc: sleep(), run_once()). The client sends requests and takes replies when it likes; the ring of
 * replies has room for two. A request is answered at once, or goes to the engine, which wakes the loop when it is done;
 * its reply's room is reserved meanwhile. A look takes two requests at most.
 * Shown: once nothing can move, each request is answered and its reply read; a reply always finds room.
 *
 * BROKEN_LAST_LOOK          want of room is announced only where the last look found none (the code as it was)
 * BROKEN_NO_SECOND_LOOK     the loop sleeps without a look after the announcements
 * BROKEN_SECOND_LOOK_FIRST  that look comes before the announcements
 * BROKEN_NOTHING_RESERVED   a request in the engine has no room of its own
 */
#define REQUESTS 5
#define ROOM 2
#define AT_MOST 2

byte sent = 0;                 /* frames in the ring of requests, so far */
byte taken = 0;
byte replies = 0;              /* written, so far */
byte read = 0;                 /* and given back by the client */
byte reserved = 0;
byte in_engine = 0;
byte returned = 0;             /* completed, and not taken back */
bool wants_requests = false;   /* announced: SleepWord of the subscriber */
bool wants_room = false;       /* announced: SleepWord of the publisher */
bool request_bell = false;
bool room_bell = false;
bool eventfd = false;

#define unread (replies - read)
#define has_room (unread + reserved < ROOM)

active proctype client() {
  do
  :: sent < REQUESTS ->
     sent++;                                            /* flush() */
     if :: wants_requests -> request_bell = true :: else fi
  :: read < replies ->
     read++;                                            /* release() */
     if :: wants_room -> room_bell = true :: else fi
  od
}

active proctype engine() {
  do
  :: atomic { in_engine > 0 -> in_engine--; returned++ };
     eventfd = true                                     /* wake(): its word is loop_wake.pml's */
  od
}

/* take_returned() and take_requests() */
inline on_wake(found) {
  found = false; looked = 0;
  do
  :: atomic { returned > 0 -> returned--; found = true;
#ifndef BROKEN_NOTHING_RESERVED
       reserved--;
#endif
       assert(unread < ROOM); replies++ }
  :: else -> break
  od;
  do
  :: looked < AT_MOST ->
     waits_for_room = !has_room;
     if :: waits_for_room -> break :: else fi;
     if :: sent == taken -> break :: else fi;
     looked++; found = true;
     if                                                 /* handle() */
     :: atomic { taken++; assert(unread < ROOM); replies++ }
     :: atomic { taken++; in_engine++;
#ifndef BROKEN_NOTHING_RESERVED
          reserved++
#endif
        }
     fi
  :: else -> break
  od
}

inline before_sleep() {
  wants_requests = true;
#ifdef BROKEN_LAST_LOOK
  if :: waits_for_room -> wants_room = true :: else fi
#else
  if :: !has_room -> wants_room = true :: else fi
#endif
}

active proctype loop() {
  bool found, waits_for_room;
  byte looked;
  do
  :: if
     :: true ->                                         /* sleep() */
#ifdef BROKEN_SECOND_LOOK_FIRST
        on_wake(found);
        before_sleep();
#else
        before_sleep();
#ifndef BROKEN_NO_SECOND_LOOK
        on_wake(found);
#endif
#endif
        if
        :: found
        :: else -> request_bell || room_bell || eventfd  /* epoll_wait() */
        fi;
        found = false;
        wants_requests = false; wants_room = false       /* after_sleep() */
     :: sent > taken || read < replies                   /* found by a poll */
     fi;
     request_bell = false; room_bell = false; eventfd = false;
     on_wake(found); found = false; looked = 0
  od
}

active proctype monitor() {
  timeout ->
  assert(sent == REQUESTS && taken == REQUESTS && replies == REQUESTS && read == REQUESTS)
}
