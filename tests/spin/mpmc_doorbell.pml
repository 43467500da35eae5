/* expect: pass; with -DCLOSE: pass; with -DBROKEN_PASS_ON: fail; with -DBROKEN_LOOK: fail; with -DBROKEN_WAKE: fail; with -DBROKEN_CLOSE: fail
 *
 * Waiting in lumen::MpmcQueue<Waiting::kDoorbell> (include/lumen/queue/mpmc_queue.h, await() of
 * base/idle_strategy.h): claims, turns, wakes of both sides, the passing on, closing. All of them are
 * seq_cst in the code. Two slots, full at first; two producers that push an item each, two consumers that
 * take one each, of which one may time out once. With -DCLOSE, and for the broken wake and close: empty at
 * first, one producer, and a thread that may close at any time.
 * A doorbell is what doorbell.pml shows of it: waiters that were not promised a wake, and tokens, one a
 * promise; a sleeper goes on by taking a token.
 * Shown: once nothing can move, no consumer sleeps while the first item is ready or the queue is closed
 * and empty, no producer while the next slot is free or the queue is closed; nothing is lost or doubled.
 * BROKEN_PASS_ON  nobody wakes for a position that was ready before the one in front of it
 * BROKEN_LOOK     no second look between prepare() and wait()
 * BROKEN_WAKE     the wake comes before the turn is published
 * BROKEN_CLOSE    who takes the last item of a closed queue wakes nobody
 * Left out: the wait after a lost race, batches (mpmc_batch.pml), looks by relaxed loads, which only wake
 * a sleeper too many or are checked by the compare-and-swap.
 */
#define SLOTS 2

byte turn[SLOTS];
bool holds[SLOTS];
byte tail = 0;
byte head = 0;
bool closed = false;   /* the top bit of tail: one word with it */
bool closing = false;
byte accepted = 0;
byte taken = 0;

#define FULL 0   /* the bell on which producers sleep */
#define EMPTY 1
byte waiters[2];
byte tokens[2];
byte asleep[2];
bool may_time_out = true;

inline wake(bell, most) {
  seen = waiters[bell];
  if
  :: seen == 0
  :: else ->
     atomic {
       seen = (waiters[bell] < most -> waiters[bell] : most);
       waiters[bell] = waiters[bell] - seen;
       tokens[bell] = tokens[bell] + seen;
       seen = 0
     }
  fi
}

inline leave(bell, was_promised) {
  atomic {
    if
    :: waiters[bell] == 0 -> assert(tokens[bell] > 0); tokens[bell]--; was_promised = true
    :: else -> waiters[bell]--; was_promised = false
    fi
  }
}

/* pass_on(): a relaxed look for sleepers, then the turn of the next position */
inline pass_on(bell, next, offset) {
#ifdef BROKEN_PASS_ON
  skip
#else
  seen = waiters[bell];
  if
  :: seen == 0
  :: else ->
     seen = turn[(next) % SLOTS];
     if
     :: seen == (next) + offset -> wake(bell, 1)
     :: else -> seen = 0
     fi
  fi
#endif
}

inline try_push() {
  ok = false;
  atomic { position = tail; stop = closed };
  do
  :: stop -> break
  :: else ->
     seen = turn[position % SLOTS];
     if
     :: seen == position ->
        atomic { if :: tail == position && !closed -> tail++; ok = true :: else fi };
        if :: ok -> break :: else fi
     :: seen < position -> break                       /* full */
     :: else
     fi;
     atomic { position = tail; stop = closed }
  od;
  if
  :: ok ->
     atomic { assert(!holds[position % SLOTS]); holds[position % SLOTS] = true; accepted++ };
#ifdef BROKEN_WAKE
     wake(EMPTY, 1);
     turn[position % SLOTS] = position + 1;
#else
     turn[position % SLOTS] = position + 1;
     wake(EMPTY, 1);
#endif
     pass_on(FULL, position + 1, 0)
  :: else
  fi;
  atomic { position = 0; seen = 0; stop = false }
}

inline try_pop() {
  ok = false;
  position = head;
  do
  :: seen = turn[position % SLOTS];
     if
     :: seen == position + 1 ->
        atomic { if :: head == position -> head++; ok = true :: else fi };
        if :: ok -> break :: else fi
     :: seen < position + 1 -> break                   /* empty */
     :: else
     fi;
     position = head
  od;
  if
  :: ok ->
     atomic { assert(holds[position % SLOTS]); holds[position % SLOTS] = false; taken++ };
     turn[position % SLOTS] = position + SLOTS;
     wake(FULL, 1);
     pass_on(EMPTY, position + 1, 1);
#ifndef BROKEN_CLOSE
     if
     :: closing -> drained(); if :: stop -> wake(EMPTY, 2) :: else fi
     :: else
     fi
#endif
  :: else
  fi;
  atomic { position = 0; seen = 0; stop = false }
}

/* into `stop` */
inline drained() {
  atomic { seen = tail; stop = closed };
  if
  :: stop -> atomic { stop = (head == seen); seen = 0 }
  :: else -> seen = 0
  fi
}

proctype producer(byte most) {
  byte position, seen, pushed;
  bool ok, stop, promised;
  do
  :: pushed == most -> break
  :: else ->
     try_push();
     if :: !ok -> stop = closed :: else -> stop = false fi;
     if
     :: ok -> pushed++
     :: !ok && stop -> break
     :: else ->
        waiters[FULL]++;                               /* prepare() */
#ifndef BROKEN_LOOK
        try_push();
        if :: !ok -> stop = closed :: else -> stop = false fi;
#endif
        if
        :: ok || stop ->
           leave(FULL, promised); promised = false;
           if :: ok -> pushed++ :: else -> break fi
        :: else ->
           asleep[FULL]++;
           atomic { tokens[FULL] > 0 -> tokens[FULL]--; asleep[FULL]-- }
        fi
     fi
  od
}

proctype consumer(byte most; bool has_deadline) {
  byte position, seen, popped;
  bool ok, stop, promised;
  do
  :: popped == most -> break
  :: else ->
     try_pop();
     if :: !ok -> drained() :: else -> stop = false fi;
     if
     :: ok -> popped++
     :: !ok && stop -> break
     :: else ->
        waiters[EMPTY]++;                              /* prepare() */
#ifndef BROKEN_LOOK
        try_pop();
        if :: !ok -> drained() :: else -> stop = false fi;
#endif
        if
        :: ok || stop ->
           leave(EMPTY, promised); promised = false;
           if :: ok -> popped++ :: else -> break fi
        :: else ->
           asleep[EMPTY]++;
           if
           :: atomic { tokens[EMPTY] > 0 -> tokens[EMPTY]--; asleep[EMPTY]-- }
           :: atomic { has_deadline && may_time_out -> may_time_out = false; asleep[EMPTY]-- };
              leave(EMPTY, promised);
              if
              :: promised -> promised = false          /* a wake came in between: look again */
              :: else ->
                 try_pop();
                 if :: ok -> popped++ :: else -> break fi
              fi
           fi
        fi
     fi
  od
}

proctype closer() {
  byte seen;
  if
  :: true                                              /* nobody closes */
  :: true ->
     closing = true;
     closed = true;
     wake(EMPTY, 2);
     wake(FULL, 2)
  fi
}

proctype monitor() {
  timeout ->
  assert(asleep[EMPTY] == 0 || turn[head % SLOTS] != head + 1);
  assert(asleep[EMPTY] == 0 || !(closed && head == tail));
  assert(asleep[FULL] == 0 || closed == false);
  assert(asleep[FULL] == 0 || turn[tail % SLOTS] != tail);
  assert(taken == head && accepted == tail)
}

init {
  atomic {
#if defined(CLOSE) || defined(BROKEN_CLOSE) || defined(BROKEN_WAKE)
    turn[1] = 1;                                        /* empty */
    run producer(1);
    run consumer(1, false); run consumer(1, true);
    run closer();
#else
    turn[0] = 1; turn[1] = 2; tail = 2; accepted = 2;   /* full */
    holds[0] = true; holds[1] = true;
    run producer(1); run producer(1);
    run consumer(1, true); run consumer(1, false);
#endif
    run monitor()
  }
}
