/* expect: pass; with -DBROKEN_NESTED_WALK: fail; with -DBROKEN_FORGETS: fail; with -DBROKEN_OVERTAKES_SETTLE: fail
 *
 * Requests that wait for memory on one I/O thread (src/transports/http/context_pool.cc). There is one thread; the
 * model explores the order of the steps of the connections: its request begins to be read and ends at once
 * (it lies whole in the buffer), or goes away and returns, or its client leaves. The memory holds one large request and
 * almost a small one; a request that has been read gives a part back (settle()).
 *   take()          take: waits where others wait, else reserves
 *   give_room()     the walk that reserves and moves to `granted`, then begins those
 *   begin_reading() begin; on_tensors() finish_reading
 *   settle(), end_request(): note `owes` where requests wait
 * Shown: a request begins once for each time that it takes room; nothing is free at rest that was not before; once
 * nothing moves, no request waits beside memory that it fits into.
 *
 * BROKEN_NESTED_WALK       settle() and end_request() walk at once, within the walk of another (the code as it was)
 * BROKEN_FORGETS           settle() does not note that memory came free
 * BROKEN_OVERTAKES_SETTLE  the walk's note is cleared after the granted ones have begun, so the memory that they freed is lost
 */
#define REQUESTS 3
#define MEMORY 7

#define IDLE 0
#define WAITS 1
#define GRANTED 2
#define READS 3
#define AWAY 4
#define DONE 5

byte state[REQUESTS];
byte holds[REQUESTS];          /* reserved units */
byte begun[REQUESTS];          /* begin_reading() since the last end */
byte queue[REQUESTS];          /* the list of those that wait, in order */
byte waiting = 0;
byte free_units = MEMORY;
bool owes = false;
bool is_walking = false;       /* of the broken variant alone */

#define need(r) (r == 0 -> 6 : 2)

/* Takes r out of the waiting list, wherever it is. */
inline unlink(r) {
  d_step {
    byte at = 0;
    do
    :: at < waiting && queue[at] != r -> at++
    :: else -> break
    od;
    if
    :: at < waiting ->
       waiting--;
       do
       :: at < waiting -> queue[at] = queue[at + 1]; at++
       :: else -> break
       od
    :: else
    fi;
    at = 0
  }
}

/* The effect of the inner call of the old code on requests behind the one that the outer walk is at: each that fits
 * is reserved for and begins, and stays in the outer walk's saved `next`. */
inline nested_walk() {
  d_step {
    byte n = 0;
    do
    :: n < waiting && need(queue[n]) <= free_units ->
       free_units = free_units - need(queue[n]);
       holds[queue[n]] = holds[queue[n]] + need(queue[n]);
       begun[queue[n]] = begun[queue[n]] + 1;
       state[queue[n]] = AWAY;
       byte m = n;
       waiting--;
       do
       :: m < waiting -> queue[m] = queue[m + 1]; m++
       :: else -> break
       od;
       m = 0
    :: n < waiting && need(queue[n]) > free_units -> n++
    :: n >= waiting -> break
    od;
    n = 0
  }
}

inline room_is_free() {
#ifdef BROKEN_NESTED_WALK
  if :: is_walking -> nested_walk() :: else -> skip fi;
#endif
  if :: waiting > 0 -> owes = true :: else fi
}

inline end_request(r) {
  free_units = free_units + holds[r]; holds[r] = 0; begun[r] = 0; state[r] = DONE;
  room_is_free()
}

/* The body is there: on_tensors(). */
inline finish_reading(r) {
  holds[r] = holds[r] - 1; free_units = free_units + 1;   /* settle() */
  state[r] = AWAY;
#ifndef BROKEN_FORGETS
  room_is_free();
#endif
  if
  :: skip
  :: end_request(r)            /* refused, or answered at once */
  fi
}

inline begin(r) {
  assert(begun[r] == 0);       /* a request begins once */
  begun[r] = 1;
  assert(holds[r] == need(r));
  state[r] = READS;
  if
  :: skip
  :: finish_reading(r)         /* it lies whole in the buffer */
  fi
}

active proctype io_thread() {
  byte r, i, next, count;
  byte granted[REQUESTS];
  byte walk[REQUESTS];
  bool moved;
end:
  do
  :: atomic {
       /* A connection's call within the turn. */
       select(r : 0 .. REQUESTS - 1);
       if
       :: state[r] == IDLE ->  /* take() */
          if
          :: waiting == 0 && need(r) <= free_units ->
             free_units = free_units - need(r); holds[r] = need(r); begin(r)
          :: else ->
             if :: waiting > 0 -> owes = true :: else fi;
             queue[waiting] = r; waiting++; state[r] = WAITS
          fi
       :: state[r] == READS -> finish_reading(r)
       :: state[r] == READS || state[r] == AWAY -> end_request(r)
       :: state[r] == WAITS -> unlink(r); end_request(r)   /* its client leaves */
       :: state[r] == DONE -> skip
       fi;
       r = 0
     }
  :: atomic {
       owes ->                 /* give_room(), at the end of a turn or of the next one, which follows at once */
#ifndef BROKEN_OVERTAKES_SETTLE
       owes = false;
#endif
       count = 0; i = 0; next = waiting;
       do
       :: i < next -> walk[i] = queue[i]; i++
       :: else -> break
       od;
       i = 0;
       do
       :: i < next ->
          r = walk[i];
#ifdef BROKEN_NESTED_WALK
          /* The saved `next` of the walk is looked at, after any inner walk. */
          if
          :: need(r) <= free_units ->
             is_walking = true;
             free_units = free_units - need(r); holds[r] = holds[r] + need(r); unlink(r); begin(r);
             is_walking = false
          :: else
          fi;
#else
          if
          :: need(r) <= free_units ->
             free_units = free_units - need(r); holds[r] = need(r); unlink(r);
             state[r] = GRANTED; granted[count] = r; count++
          :: else
          fi;
#endif
          i++
       :: else -> break
       od;
       i = 0;
       do
       :: i < count -> r = granted[i]; begin(r); i++
       :: else -> break
       od;
#ifdef BROKEN_OVERTAKES_SETTLE
       owes = false;
#endif
       i = 0; r = 0; next = 0; count = 0
     }
  :: !owes && state[0] == DONE && state[1] == DONE && state[2] == DONE ->
     assert(free_units == MEMORY);   /* at rest nothing is held */
     break
  :: !owes && waiting > 0 ->
     /* Nothing is owed, so the oldest that waits must not fit. */
     assert(need(queue[0]) > free_units);
     moved = true
  od
}
