/* expect: pass; with -DDEEP: pass; with -DBROKEN_NO_GRAPH: fail; with -DBROKEN_LOOKS_THEN_ADDS: fail; with -DBROKEN_EDGE_OUTLIVES_FLIGHT: fail; with -DBROKEN_LONE_FLIGHT_IS_NOT_LISTED: fail
 *
 * Threads whose computations ask for other keys (include/lumen/cache/detail/flights.h, include/lumen/cache/detail/wait_graph.h). Three
 * threads ask for any keys of two caches, each computation for one more key at most; with DEEP two threads, three keys
 * deep, and one more key after an answer. A computation ends, fails, or asks for another key.
 *   Flights::run()     ASK: the lock, look(), find(), is_led_here(); ADD: WaitEdge; WAIT: landed_.wait()
 *   Flights::lead()    COMPUTE: compute(); LAND: the lock, store(), land()
 *   WaitEdge()         ADD, one step under the graph's lock; ~WaitEdge() WOKEN, another one later
 * Shown: all threads end; a circle is told only where each of its flights is under way; no computation asks for a key
 * that its own thread computes without being told.
 *
 * BROKEN_NO_GRAPH                    threads wait without a look at the graph (the code as it was)
 * BROKEN_LOOKS_THEN_ADDS             the look and the addition are two steps
 * BROKEN_EDGE_OUTLIVES_FLIGHT        a flight that is over counts until its waiter has woken
 * BROKEN_LONE_FLIGHT_IS_NOT_LISTED   the flight of a thread that was told of a circle is not found again
 */
#if defined(DEEP) || defined(BROKEN_LONE_FLIGHT_IS_NOT_LISTED) || defined(BROKEN_EDGE_OUTLIVES_FLIGHT)
#define THREADS 2
#define DEPTH 3
#define ASKS_AGAIN
#else
#define THREADS 3
#define DEPTH 2
#endif
#define KEYS 3
#define FLIGHTS 6              /* one a thread and depth */
#define NONE 255

#define cache_of(k) (k / 2)    /* keys 0 and 1 share a cache */
#define leader_of(f) (f / DEPTH)

#define ASK 0
#define ADD 1
#define WAIT 2
#define WOKEN 3
#define COMPUTE 4
#define LAND 5
#define RETURN 6

bool locked[2];
bool cached[KEYS];
bool listed[FLIGHTS];
bool over[FLIGHTS];
bool has_value[FLIGHTS];
byte key_of[FLIGHTS];
byte edge[THREADS];            /* the flight that its WaitEdge names */
byte ended = 0;

inline lock(c) { atomic { !locked[c] -> locked[c] = true } }

/* found: a listed flight for k; of several any. led_here: one of them is this thread's. */
inline find(k) {
  d_step {
    found = NONE; led_here = false; f = 0;
    do
    :: f < FLIGHTS ->
       if
       :: listed[f] && key_of[f] == k ->
          if :: found == NONE -> found = f :: else fi;
          if :: leader_of(f) == id -> led_here = true :: else fi
       :: else
       fi;
       f++
    :: else -> break
    od;
    f = 0
  }
}

/* is_circle: the way from `found` leads back to this thread. */
inline look_for_circle() {
  d_step {
    is_circle = false; is_real = true; f = found;
    do
    :: leader_of(f) == id -> is_circle = true; break
    :: else ->
       next = edge[leader_of(f)];
       if
       :: next == NONE -> break
#ifndef BROKEN_EDGE_OUTLIVES_FLIGHT
       :: next != NONE && over[next] -> break
       :: else -> f = next
#else
       :: else -> f = next; if :: over[next] -> is_real = false :: else fi
#endif
       fi
    od;
    if :: is_circle -> assert(is_real) :: else fi;
    is_real = false; next = 0; f = 0
  }
}

proctype caller(byte id) {
  byte depth = 0, found = NONE, f = 0, phase = ASK;
  byte key[DEPTH];             /* of the calls under way, the innermost last */
  byte mine[DEPTH];            /* their flights */
  byte next;
  bool led_here, is_circle, is_real, failed, has_asked_again;
  select(f : 0 .. KEYS - 1);
  key[0] = f; f = 0;
  do
  :: phase == ASK ->
     lock(cache_of(key[depth]));
     atomic {
       find(key[depth]);
       if
       :: cached[key[depth]] -> failed = false; locked[cache_of(key[depth])] = false; phase = RETURN
       :: !cached[key[depth]] && led_here ->
          failed = true; locked[cache_of(key[depth])] = false; phase = RETURN
       :: !cached[key[depth]] && !led_here && found != NONE -> phase = ADD
       :: else -> phase = COMPUTE
       fi
     }
  :: phase == ADD ->           /* the cache's lock is held */
#ifdef BROKEN_NO_GRAPH
     phase = WAIT; locked[cache_of(key[depth])] = false
#else
#ifdef BROKEN_LOOKS_THEN_ADDS
     atomic { look_for_circle() };
#endif
     atomic {
#ifndef BROKEN_LOOKS_THEN_ADDS
       look_for_circle();
#endif
       if
       :: is_circle -> phase = COMPUTE
       :: else -> edge[id] = found; phase = WAIT; locked[cache_of(key[depth])] = false
       fi;
       is_circle = false
     }
#endif
  :: phase == WAIT -> over[found]; phase = WOKEN
  :: phase == WOKEN ->
     lock(cache_of(key[depth]));
     atomic {
       edge[id] = NONE; locked[cache_of(key[depth])] = false;
       if
       :: has_value[found] -> failed = false; phase = RETURN
       :: else -> phase = ASK
       fi;
       found = NONE
     }
  :: phase == COMPUTE ->       /* the cache's lock is held: push_back, then unlock, compute() */
     atomic {
       mine[depth] = id * DEPTH + depth;
       key_of[mine[depth]] = key[depth]; over[mine[depth]] = false; has_value[mine[depth]] = false;
#ifdef BROKEN_LONE_FLIGHT_IS_NOT_LISTED
       listed[mine[depth]] = (found == NONE);
#else
       listed[mine[depth]] = true;
#endif
       locked[cache_of(key[depth])] = false;
       found = NONE; led_here = false;
       /* Else it could go on for ever. */
       assert(depth < 1 || key[depth] != key[0]);
#if DEPTH > 2
       assert(depth < 2 || key[depth] != key[1]);
#endif
       if
       :: failed = false; phase = LAND
       :: failed = true; phase = LAND
       :: depth + 1 < DEPTH -> select(f : 0 .. KEYS - 1); depth++; key[depth] = f; f = 0; phase = ASK
       fi
     }
  :: phase == LAND ->
     lock(cache_of(key[depth]));
     atomic {
       if :: !failed -> cached[key[depth]] = true :: else fi;
       has_value[mine[depth]] = !failed; over[mine[depth]] = true; listed[mine[depth]] = false;
       locked[cache_of(key[depth])] = false; phase = RETURN
     }
  :: phase == RETURN ->        /* into the computation that asked, which passes a failure on, or catches it */
     atomic {
       if
       :: depth == 0 -> break
       :: else ->
          if
          :: depth--; phase = LAND
          :: failed -> failed = false; depth--; phase = LAND
#ifdef ASKS_AGAIN
          :: !has_asked_again -> has_asked_again = true; select(f : 0 .. KEYS - 1); key[depth] = f; f = 0; phase = ASK
#endif
          fi
       fi
     }
  od;
  ended++
}

init {
  atomic {
    byte t = 0;
    do :: t < THREADS -> edge[t] = NONE; run caller(t); t++ :: else -> break od
  }
  do
  :: timeout -> assert(ended == THREADS); break
  od
}
