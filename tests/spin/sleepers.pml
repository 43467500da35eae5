/* expect: pass; with -DBROKEN_BIT_FIRST: fail; with -DORDER_ALONE: pass; with -DBROKEN_ORDER_ALONE: fail; with -DBROKEN_WOKEN: fail; with -DBROKEN_TAKER: fail; with -DBROKEN_SEARCH: fail
 *
 * Sleep and wake of lumen::engine::Sleepers (src/engine/sleepers.h), its statements in their order, over a
 * queue of one ring that anyone may look at: one queue whose bit is always set. queues.pml is about the bits.
 * Two submitters push a request each, or one submitter two, in one turn or in two; each is claimed and
 * published in two steps, with a wake at the end of a turn. Two workers take them and park; with one
 * submitter one sleep may end by a deadline; in three of the four scenarios worker 0 also polls
 * (begin_search, end_search). A worker that runs a request may do so for ever. A pop is one step: it
 * looks at the slot at head, and its compare-and-swap makes it look again if head has moved. Each
 * worker's doorbell has one waiter and is one step here: doorbell.pml is about its own.
 * Shown: once nothing can move, no request that can be taken lies in the queue beside a worker that
 * sleeps; so also that none is left there once all workers sleep.
 * Spin's memory is sequentially consistent. In the code it is release and acquire: that the
 * read-modify-writes of `bits` and of `searching` carry the requests along is reasoned there.
 * BROKEN_BIT_FIRST    the code as it was: the bit before prepare(), nobody passes a wake on; one worker,
 *                     which never runs for ever: a request is lost even so
 * ORDER_ALONE         only the order mended, no worker runs for ever: nothing is lost
 * BROKEN_ORDER_ALONE  the same where workers may: a request lies beside a sleeping worker
 * BROKEN_WOKEN         who was woken while it found a request does not pass the wake on
 * BROKEN_TAKER        only who was woken passes on, not everyone who takes a request
 * BROKEN_SEARCH       who ends its polling takes a request first and leaves the count of searchers after
 */
#define WORKERS 2
#define ITEMS 2
#define MOST_SEARCHERS 1

#ifdef BROKEN_BIT_FIRST
#define OLD_WAKE
#define ALWAYS_ENDS
#define ONE_WORKER
#endif
#ifdef ORDER_ALONE
#define OLD_WAKE
#define ALWAYS_ENDS
#endif
#ifdef BROKEN_ORDER_ALONE
#define OLD_WAKE
#endif

byte tail = 0;                 /* claimed by submitters */
byte head = 0;                 /* claimed by workers */
bool published[ITEMS];
byte bits = 0;
short searching = 0;
byte bell[WORKERS];            /* 0: nobody, 1: a waiter, 2: a token for it */
bool asleep[WORKERS];          /* inside wait() */
byte timeouts_left = 0;
bool polls = false;            /* worker 0 may poll; the scenario says */

#define mask(w) (1 << (w))

inline pop(got) {
  d_step {
    if
    :: head < tail && published[head] -> head++; got = true
    :: else -> got = false
    fi
  }
}

inline wake_sleepers(count) {
  atomic { most = count; seen = bits };      /* fetch_or(0) */
  do
  :: seen == 0 || most == 0 -> break
  :: else ->
#ifndef OLD_WAKE
     requests = tail - head;                /* size_was(); what a head read later misses has its own wake to come */
     if :: requests <= searching -> break :: else fi;
#endif
     which = ((seen & 1) -> 0 : 1);
     seen = seen & ~mask(which);
     d_step { was = bits & mask(which); bits = bits & ~mask(which) };
     if
     :: was != 0 ->
#ifndef OLD_WAKE
        searching++;
#endif
        if :: bell[which] == 1 -> bell[which] = 2 :: else fi;
        most--
     :: else
     fi
  od;
  atomic { seen = 0; most = 0; requests = 0; which = 0; was = 0 }
}

inline pass_on() {
#ifndef OLD_WAKE
  if :: bits != 0 -> wake_sleepers(1) :: else fi
#else
  skip
#endif
}

inline taker_passes_on() {
#ifndef BROKEN_TAKER
  pass_on()
#else
  skip
#endif
}

inline try_take(got) {
  pop(got);
  if :: got -> taker_passes_on() :: else fi
}

inline park(me, got) {
#ifdef BROKEN_BIT_FIRST
  bits = bits | mask(me);
  bell[me] = 1;                             /* prepare() */
#else
  bell[me] = 1;                             /* prepare() */
  bits = bits | mask(me);
#endif
  atomic {
    pop(got);
    if :: got :: else -> asleep[me] = true fi
  };
  if
  :: got -> bell[me] = 0                    /* cancel() */
  :: else ->
     if
     :: atomic { bell[me] == 2 -> bell[me] = 0; asleep[me] = false }
     :: atomic { timeouts_left > 0 -> timeouts_left--; bell[me] = 0; asleep[me] = false }
     fi
  fi;
  d_step { woken = ((bits & mask(me)) == 0); bits = bits & ~mask(me) };
#ifndef OLD_WAKE
  if
  :: woken ->
     searching--;
     if
     :: !got -> try_take(got)
#ifdef BROKEN_WOKEN
     :: else
#else
     :: else -> pass_on()
#endif
     fi
  :: !woken && got -> taker_passes_on()
  :: else
  fi;
#endif
  woken = false
}

proctype worker(byte me) {
  bool got;
  bool woken;
  byte seen; byte most; byte requests; byte which; byte was;
  do
  :: try_take(got);
     if
     :: got
     :: else ->
#ifndef OLD_WAKE
        if
        :: me == 1 || !polls
        :: me == 0 && polls ->              /* begin_search() */
           if
           :: atomic { searching < MOST_SEARCHERS -> searching++ };
#ifdef BROKEN_SEARCH
              try_take(got);
              searching--
#else
              searching--;                  /* whenever: it polls for as long as it likes */
              try_take(got)
#endif
           :: atomic { searching >= MOST_SEARCHERS -> searching++ };
              searching--
           fi
        fi;
#endif
        if
        :: got
        :: else -> park(me, got)
        fi
     fi;
     if
     :: got ->
        got = false;
#ifndef ALWAYS_ENDS
        if :: true :: true -> break fi      /* runs it, perhaps for ever */
#endif
     :: else
     fi
  od
}

inline push() {
  d_step { place = tail; tail++ };
  d_step { published[place] = true; place = 0 }
}

proctype submitter(byte turns; byte each) {
  byte place;
  byte pushed;
  byte seen; byte most; byte requests; byte which; byte was;
  do
  :: turns > 0 ->
     turns--;
     pushed = 0;
     do
     :: pushed < each -> push(); pushed++
     :: else -> break
     od;
     wake_sleepers(each)
  :: else -> break
  od
}

proctype monitor() {
  timeout ->
  assert(!(head < tail && published[head]) || !(asleep[0] || asleep[1]))
}

init {
  atomic {
    run worker(0);
#ifndef ONE_WORKER
    run worker(1);
#endif
    if
    :: run submitter(1, 1); run submitter(1, 1)
    :: run submitter(1, 1); run submitter(1, 1); polls = true
    :: run submitter(2, 1); polls = true; timeouts_left = 1
    :: run submitter(1, 2); polls = true; timeouts_left = 1
    fi;
    run monitor()
  }
}
