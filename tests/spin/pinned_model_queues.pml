/* expect: pass; with -DTWO_SUBMITTERS: pass; with -DTWO_OWNERS: pass; with -DTWO_OWNERS_OF_THREE: pass; with -DBROKEN_NO_BELLS: fail; with -DBROKEN_NO_BELLS_OF_THREE: fail; with -DBROKEN_BELLS_BEFORE_MARK: fail; with -DBROKEN_WAKE_FIRST: fail; with -DBROKEN_NO_WAKE_ONE: fail; with -DBROKEN_TAKER: fail; with -DBROKEN_NO_SECOND_LOOK: fail
 *
 * -DTHREE_OWNERS (three of three) takes minutes, so it is run by hand: spin -a -DTHREE_OWNERS pinned_model_queues.pml;
 * cc -O2 -DSAFETY -DBITSTATE -o pan pan.c; ./pan -m1000000 -E -w33 (1.8e8 states, 7 minutes).
 *
 * A queue for some workers only (src/engine/model_queues.h, model_queue_source.h) beside one for any, under Sleepers
 * (src/engine/sleepers.h): queue 0 is for all workers and always marked, queue 1 for its owners alone, with a mark that
 * one of these clears before it sleeps. Two submitters or one, which pushes to both queues in one turn or in two. For
 * queue 0 sleepers are woken and counted (sleepers.pml has each of these steps); for queue 1 each owner's doorbell is
 * rung, and requests are not counted. A worker that runs a request may do so for ever. No worker polls.
 * Shown, once nothing can move: no request that can be taken lies in a queue beside a sleeping worker that may take it.
 *
 * It follows, statement by statement: pop(): ModelQueues::choose(), the load of the bits and then the rings, with take_from();
 * tidy(): ModelQueues::tidy(), and wake_each_of() of ModelQueueSource::park(); park(): Sleepers::park(); wake_sleepers():
 * Sleepers::wake(); try_take() and pass_on(): those of Sleepers; push(): ModelQueues::push(); end_turn(): ModelQueueSource::wake_workers().
 * A pop takes from any of the queues that its worker may take from, so any policy and priority is one of those here.
 * Spin's memory is sequentially consistent, see sleepers.pml.
 * TWO_SUBMITTERS        one of them for each queue, and the owner's queue gets a request from both
 * TWO_OWNERS            both workers own queue 1
 * TWO_OWNERS_OF_THREE   two of three workers own it
 * THREE_OWNERS          all three; too many states for a run of all
 * BROKEN_NO_BELLS       two owners; one that has cleared the mark and set it again rings no bell: the other may have
 *                       looked in between, and sleeps beside the second request while the first one runs
 * BROKEN_NO_BELLS_OF_THREE  as that, with three owners
 * BROKEN_BELLS_BEFORE_MARK  two owners; it rings before it sets the mark again
 * BROKEN_WAKE_FIRST     the owner's bell before announce()
 * BROKEN_NO_WAKE_ONE    queue 1 is counted with queue 0, and whoever sleeps is woken for it
 * BROKEN_TAKER          who takes from queue 1 does not pass on a wake that was for queue 0
 * BROKEN_NO_SECOND_LOOK tidy() clears and does not look again
 */
#if defined(BROKEN_NO_BELLS) || defined(BROKEN_BELLS_BEFORE_MARK)
#define TWO_OWNERS
#endif
#ifdef BROKEN_NO_BELLS_OF_THREE
#define BROKEN_NO_BELLS
#define THREE_OWNERS
#endif
#if defined(THREE_OWNERS) || defined(TWO_OWNERS_OF_THREE)
#define WORKERS 3
#else
#define WORKERS 2
#endif
#if defined(TWO_OWNERS) || defined(THREE_OWNERS) || defined(TWO_OWNERS_OF_THREE)
#define SEVERAL_OWNERS
#endif
#define QUEUES 2

byte tail[QUEUES];              /* claimed by submitters */
byte head[QUEUES];              /* claimed by workers */
byte published[QUEUES];         /* a bit a place */
byte owners = 1;               /* a bit a worker that may take from queue 1 */
bool marked = true;            /* queue 1 */
byte bits = 0;                 /* a bit a sleeper */
short searching = 0;
byte bell[WORKERS];            /* 0: nobody, 1: a waiter, 2: a token for it */
bool asleep[WORKERS];          /* inside wait() */

#define mask(w) (1 << (w))
#define can_take(queue) (head[queue] < tail[queue] && (published[queue] & mask(head[queue])) != 0)
#define owns(w) ((owners & mask(w)) != 0)

inline pop(me, got) {
  saw = owns(me) && marked;                  /* choose(): the word of bits */
  atomic {                                   /* the rings, and try_pop() of one */
    if
    :: can_take(0) -> head[0]++; got = true; from = 0
    :: saw && can_take(1) -> head[1]++; got = true; from = 1
    :: !can_take(0) && !(saw && can_take(1)) -> got = false
    fi;
    saw = false
  }
}

inline ring(w) {
  if :: bell[w] == 1 -> bell[w] = 2 :: else fi
}

inline wake_sleepers(count) {
  atomic { most = count; seen = bits };      /* fetch_or(0) */
  do
  :: seen == 0 || most == 0 -> break
  :: else ->
     requests = tail[0] - head[0];           /* size_was(): of queue 0 */
#ifdef BROKEN_NO_WAKE_ONE
     requests = requests + tail[1] - head[1];
#endif
     if :: requests <= searching -> break :: else fi;
     which = ((seen & 1) -> 0 : ((seen & 2) -> 1 : 2));   /* countr_zero() */
     seen = seen & ~mask(which);
     d_step { was = bits & mask(which); bits = bits & ~mask(which) };
     if
     :: was != 0 ->
        searching++;
        ring(which);
        most--
     :: else
     fi
  od
}

inline pass_on() {
#ifdef BROKEN_TAKER
  if :: from == 0 -> wake_sleepers(1) :: else fi
#else
  wake_sleepers(1)
#endif
}

inline try_take(me, got) {
  pop(me, got);
  if :: got -> pass_on() :: else fi
}

inline ring_owners_but(me) {                 /* wake_each_of(); WORKERS: all of them */
  if :: owns(0) && me != 0 -> ring(0) :: else fi;
  if :: owns(1) && me != 1 -> ring(1) :: else fi;
#if WORKERS > 2
  if :: owns(2) && me != 2 -> ring(2) :: else fi;
#endif
  skip
}

inline tidy(me) {
  saw = owns(me) && marked;                  /* for_each_marked(): the word of bits */
  if
  :: saw && tail[1] == head[1] ->            /* was_empty() */
     marked = false;
#ifndef BROKEN_NO_SECOND_LOOK
     if
     :: tail[1] != head[1] ->
#ifdef BROKEN_BELLS_BEFORE_MARK
        ring_owners_but(me);
        marked = true
#else
        marked = true;
#ifndef BROKEN_NO_BELLS
        ring_owners_but(me)
#endif
#endif
     :: else
     fi
#endif
  :: else
  fi;
  saw = false
}

inline park(me, got) {
  bell[me] = 1;                              /* prepare() */
  bits = bits | mask(me);
  pop(me, got);
  if
  :: got -> bell[me] = 0                     /* cancel() */
  :: else ->
     asleep[me] = true;
     atomic { bell[me] == 2 -> bell[me] = 0; asleep[me] = false }
  fi;
  d_step { woken = ((bits & mask(me)) == 0); bits = bits & ~mask(me) };
  if
  :: woken ->
     searching--;
     if :: !got -> try_take(me, got) :: else -> pass_on() fi
  :: !woken && got -> pass_on()
  :: else
  fi;
  woken = false
}

proctype worker(byte me) {
  bool got; bool woken; bool saw; byte from;
  byte seen; byte most; byte requests; byte which; byte was;
  do
  :: try_take(me, got);
     if
     :: got
     :: else ->
        tidy(me);
        park(me, got)
     fi;
     if
     :: got ->
        got = false;
        if :: true :: true -> break fi       /* runs it, perhaps for ever */
     :: else
     fi
  od
}

inline push(queue) {
  d_step { place = tail[queue]; tail[queue]++ };
  d_step { published[queue] = published[queue] | mask(place); place = 0 };
  if                                         /* its load before the fetch_or is relaxed: set, or not */
  :: queue == 1 -> if :: marked = true :: true fi
  :: else
  fi
}

inline ring_for_lane_1() {
#ifdef BROKEN_NO_WAKE_ONE
  skip
#else
  if :: to[1] > 0 -> ring_owners_but(WORKERS) :: else fi
#endif
}

inline end_turn() {
#ifdef BROKEN_WAKE_FIRST
  ring_for_lane_1();
#endif
  if :: to[1] > 0 -> marked = true :: else fi;   /* announce() */
#ifdef BROKEN_NO_WAKE_ONE
  wake_sleepers(to[0] + to[1]);
#else
  if :: to[0] > 0 -> wake_sleepers(to[0]) :: else fi;
#endif
#ifndef BROKEN_WAKE_FIRST
  ring_for_lane_1();
#endif
  atomic { to[0] = 0; to[1] = 0 }
}

proctype submitter(byte for_0; byte for_1; bool in_one_turn) {
  byte place; byte to[QUEUES];
  byte seen; byte most; byte requests; byte which; byte was;
  do
  :: for_0 > 0 -> for_0--; push(0); to[0]++; if :: !in_one_turn -> end_turn() :: else fi
  :: for_1 > 0 -> for_1--; push(1); to[1]++; if :: !in_one_turn -> end_turn() :: else fi
  :: for_0 == 0 && for_1 == 0 -> break
  od;
  if :: in_one_turn -> end_turn() :: else fi
}

proctype monitor() {
  timeout ->
  assert(!can_take(0) || !(asleep[0] || asleep[1]));
  assert(!can_take(1) || !((owns(0) && asleep[0]) || (owns(1) && asleep[1])));
#if WORKERS > 2
  assert(!can_take(0) || !asleep[2]);
  assert(!can_take(1) || !(owns(2) && asleep[2]));
#endif
  skip
}

init {
  atomic {
#if defined(THREE_OWNERS)
    owners = 7;
#elif defined(TWO_OWNERS_OF_THREE)
    owners = 3;
#elif defined(TWO_OWNERS)
    owners = 3;
#else
    if :: owners = 1 :: owners = 2 fi;
#endif
    run worker(0);
    run worker(1);
#if WORKERS > 2
    run worker(2);
#endif
#if defined(TWO_SUBMITTERS)
    run submitter(1, 1, true);
    run submitter(0, 1, true);
#elif WORKERS > 2
    run submitter(0, 2, true);
#elif defined(SEVERAL_OWNERS)
    if
    :: run submitter(0, 2, true)
    :: run submitter(0, 2, false)
    :: run submitter(1, 2, true)
    fi;
#else
    if
    :: run submitter(1, 1, true)
    :: run submitter(1, 1, false)
    :: run submitter(1, 2, true)
    fi;
#endif
    run monitor()
  }
}
