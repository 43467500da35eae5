/* expect: pass; with -DBROKEN_TWO_STATES: fail; with -DBROKEN_STORE: fail; with -DBROKEN_FORGETS: fail; with -DBROKEN_STICKS: fail
 *
 * The sleep and wake of the loops (src/net/wake_word.h; src/net/epoll_loop.cc and src/net/uring_loop.cc: wake(),
 * sleep(), run_once(); with io_uring `eventfd` is the completion that wake() leaves in the ring, and taking it is
 * the read) with what its handlers do (src/server/io_thread.cc). Three threads each leave something and call wake():
 * `posted` is taken by on_wake(), `changed` (a scheduler to retire) by on_turn_end() only, `drain` is
 * looked at after run_once(). Retiring completes a request, which wakes the loop from its own thread.
 * Sockets have events of their own at any time.
 * Shown: once nothing can move, nothing is left, and the loop sleeps in the kernel with no event to read.
 * The number of turns is bounded: no wake-up keeps the loop turning.
 * BROKEN_TWO_STATES  awake and asleep only: the code before, where a wake() of an awake loop did nothing
 * BROKEN_STORE       sleep() stores kAsleep instead of a compare-and-swap from kAwake
 * BROKEN_FORGETS     kWoken is cleared at the end of the turn, where no on_turn_end() follows
 * BROKEN_STICKS      kWoken is never cleared but by a sleep
 */
#define AWAKE 0
#define ASLEEP 1
#define WOKEN 2

byte word = AWAKE;
bool eventfd = false;
byte socket_events = 2;
bool posted = false;
bool changed = false;
bool drain = false;
bool drain_seen = false;
byte finished = 0;
byte turns = 0;
bool in_kernel = false;

inline wake(old) {
#ifdef BROKEN_TWO_STATES
  atomic { old = word; word = AWAKE };
#else
  atomic { old = word; word = WOKEN };
#endif
  if :: old == ASLEEP -> eventfd = true :: else fi
}

inline epoll_wait_for_ever(read_eventfd) {
  in_kernel = true;
  if
  :: atomic { eventfd -> read_eventfd = true }
  :: atomic { socket_events > 0 -> socket_events--; read_eventfd = eventfd }
  fi;
  in_kernel = false
}

inline epoll_wait_not(read_eventfd) {
  atomic { read_eventfd = eventfd; if :: socket_events > 0 -> socket_events-- :: true fi }
}

inline on_wake(found) { atomic { found = posted; posted = false } }

active proctype loop() {
  bool found, slept, read_eventfd, worked;
  byte old, round;
  do
  :: turns++;
     assert(turns <= 16);
     read_eventfd = false;
     if
     :: atomic { socket_events > 0 -> socket_events--; read_eventfd = eventfd }  /* found by a poll */
     :: true ->                                            /* sleep() */
#ifdef BROKEN_TWO_STATES
        word = ASLEEP;
        on_wake(found);
        found = found || (drain && !drain_seen);           /* its special case */
        if
        :: found -> epoll_wait_not(read_eventfd)
        :: else -> epoll_wait_for_ever(read_eventfd)
        fi;
        word = AWAKE
#else
        on_wake(found);
        if
        :: found -> epoll_wait_not(read_eventfd)
        :: else ->
#ifdef BROKEN_STORE
           word = ASLEEP; slept = true;
#else
           atomic { slept = (word == AWAKE); if :: slept -> word = ASLEEP :: else fi };
#endif
           if
           :: slept -> epoll_wait_for_ever(read_eventfd); word = AWAKE
           :: else -> epoll_wait_not(read_eventfd)
           fi
        fi
#endif
     fi;
     if :: read_eventfd -> eventfd = false :: else fi;     /* on_event() */
     round = 0;
     do
     :: round < 2 ->
        round++;
#if !defined(BROKEN_STICKS) && !defined(BROKEN_FORGETS) && !defined(BROKEN_TWO_STATES)
        if :: word == WOKEN -> word = AWAKE :: else fi;    /* served() */
#endif
        on_wake(found);
        worked = false;                                    /* on_turn_end() */
        atomic { if :: changed -> changed = false; worked = true :: else fi };
        if :: worked -> wake(old) :: else -> break fi
     :: round == 2 -> break
     od;
#ifdef BROKEN_FORGETS
     word = AWAKE;
#endif
     if :: drain -> drain_seen = true :: else fi           /* run() */
  od
}

active proctype poster() { byte old; posted = true; wake(old); finished++ }
active proctype changer() { byte old; changed = true; wake(old); finished++ }
active proctype drainer() { byte old; drain = true; wake(old); finished++ }

active proctype monitor() {
  timeout ->
  assert(finished == 3);
  assert(!posted);
  assert(!changed);
  assert(drain_seen);
  assert(in_kernel && word == ASLEEP && !eventfd)
}
