/* expect: pass; with -DBROKEN_VERSION_LATE: fail; with -DBROKEN_TOUCH_FIRST: fail; with -DBROKEN_NO_EVENT: fail; with -DBROKEN_DRAIN_LATE: fail; with -DBROKEN_RING_FIRST: fail
 *
 * How lumen::bus hands a new subscriber to a publisher that may sleep (src/bus/subscriber_link.h, subscriber_link.cc, publisher.cc: PendingSubscribers,
 * look(), attach_pending(), attach(), wait_for_subscribers(), flush(); src/bus/subscriber.cc: attach(), sleep()).
 * The listener adds SUBSCRIBERS links, one by one. The publisher waits until all are attached, then publishes a
 * frame. Each subscriber waits for it from its welcome on. A mutex's section is one statement.
 * Shown: once nothing can move, all are attached, and each has the frame.
 * BROKEN_VERSION_LATE   the publisher reads the version after it has taken the links
 * BROKEN_TOUCH_FIRST    the listener advances the version before it adds the link
 * BROKEN_NO_EVENT       it advances the version and makes nothing readable
 * BROKEN_DRAIN_LATE     the publisher takes the event away between its last look and its poll
 * BROKEN_RING_FIRST     it looks at the sleepers' words before it publishes
 */
#define SUBSCRIBERS 2

byte pending = 0;              /* links, under the mutex */
byte version = 0;
bool event = false;
byte attached = 0;             /* entries in the publisher's page: below it, attached */
byte tail = 0;
byte asleep[SUBSCRIBERS];      /* cursor files */
bool bell[SUBSCRIBERS];
byte has_frame = 0;

active proctype listener() {
  byte i;
  for (i : 1 .. SUBSCRIBERS) {
#ifdef BROKEN_TOUCH_FIRST
    version++;
    event = true;
    pending++
#else
    pending++;                 /* add() */
    version++;                 /* touch() */
#ifndef BROKEN_NO_EVENT
    event = true
#endif
#endif
  }
}

inline ring(i) {
  word = asleep[i];
  if
  :: word % 2 == 1 && rung[i] != word -> rung[i] = word; bell[i] = true
  :: else
  fi
}

active proctype publisher() {
  byte seen = 0, taken, word, i;
  byte rung[SUBSCRIBERS];
  do
  :: attached < SUBSCRIBERS ->
     if                        /* look() */
     :: version != seen ->
#ifdef BROKEN_VERSION_LATE
        atomic { taken = pending; pending = 0 }
        seen = version;
#else
        seen = version;
        atomic { taken = pending; pending = 0 }
#endif
        do
        :: taken > 0 ->
           attached++;
           ring(attached - 1);
           taken--
        :: else -> break
        od
     :: else
     fi;
     if
     :: attached == SUBSCRIBERS -> break
     :: else
     fi;
#ifdef BROKEN_DRAIN_LATE
     event = false;
#endif
     event;                    /* poll() */
#ifndef BROKEN_DRAIN_LATE
     event = false
#endif
  :: else -> break
  od;
#ifdef BROKEN_RING_FIRST
  for (i : 0 .. SUBSCRIBERS - 1) { ring(i) }
  tail = 1
#else
  tail = 1;
  for (i : 0 .. SUBSCRIBERS - 1) { ring(i) }
#endif
}

active [SUBSCRIBERS] proctype subscriber() {
  byte word = 0;
  byte me = _pid - 2;
  do
  :: if
     :: me < attached && tail != 0 -> break
     :: else
     fi;
     word = (word + 1) | 1;
     asleep[me] = word;
     if
     :: me < attached && tail != 0 -> break
     :: else
     fi;
     bell[me];                 /* poll() */
     word = word + 1;
     asleep[me] = word;
     bell[me] = false
  od;
  has_frame++
}

active proctype monitor() {
  timeout ->
  assert(attached == SUBSCRIBERS && has_frame == SUBSCRIBERS)
}
