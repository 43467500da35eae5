/* expect: pass; with -DBROKEN: fail; with -DBROKEN_CANCEL: fail; with -DBROKEN_WAKE: fail
 *
 * The sleep and wake of lumen::Doorbell (include/lumen/base/doorbell.h): waiters and tokens in one
 * word, every step on it one atomic action, so that sequential consistency is the right model (the
 * code's operations on it are read-modify-writes or seq_cst).
 * Two wakers publish two items and one; three waiters take items, and sleep when there are none; one
 * of them may time out once. The kernel may wake any sleeper, not only the oldest.
 * Shown: once nothing can move, no item is left (no lost wake-up), no token is left over (no wake-up
 * without a sleeper), and each sleeper is counted exactly once.
 * BROKEN         no second look between prepare() and wait()
 * BROKEN_CANCEL  cancel() leaves a token lying that a waker has promised it already
 * BROKEN_WAKE    the waker promises one more waiter than it wakes
 */
#define WAITERS 3
#define WAKERS 2

byte work = 0;     /* items published and not taken */
byte waiters = 0;  /* the high half of the word */
byte tokens = 0;   /* the low half, the futex word */
bool asleep[WAITERS];
byte timeouts_left = 1;

inline take_item(got) {
  d_step { got = (work > 0); if :: work > 0 -> work-- :: else fi }
}

inline leave() {  /* cancel() and a timeout */
  atomic {
#ifdef BROKEN_CANCEL
    if
    :: waiters == 0
    :: else -> waiters--
    fi
#else
    if
    :: waiters == 0 -> assert(tokens > 0); tokens--
    :: else -> waiters--
    fi
#endif
  }
}

proctype waiter(byte me) {
  bool got;
  do
  :: take_item(got);
     if
     :: got
     :: else ->
        waiters++;                      /* prepare() */
#ifdef BROKEN
        got = false;
#else
        take_item(got);
#endif
        if
        :: got -> leave()
        :: else ->
           do
           :: atomic { tokens > 0 -> tokens--; break }
           :: atomic { tokens == 0 -> asleep[me] = true };   /* FUTEX_WAIT compares and sleeps */
             if
              :: !asleep[me]                                 /* woken: try again */
              :: atomic { me == 0 && timeouts_left > 0 && asleep[me] ->
                          asleep[me] = false; timeouts_left-- };
                 leave(); break
              fi
           od
        fi
     fi
  od
}

inline futex_wake(count) {
  byte woken = 0;
  do
  :: woken < count ->
     atomic {
       if
       :: asleep[0] -> asleep[0] = false
       :: asleep[1] -> asleep[1] = false
       :: asleep[2] -> asleep[2] = false
       :: else -> skip
       fi;
       woken++
     }
  :: woken == count -> break
  od
}

proctype waker(byte items; byte most) {
  byte seen;
  byte promised;
  do
  :: items > 0 ->
     items--;
     work++;                            /* publish */
     seen = waiters;                    /* wake(): its fast look */
     if
     :: seen == 0
     :: else ->
        atomic {                        /* the compare-and-swap that succeeds */
          promised = (waiters < most -> waiters : most);
          waiters = waiters - promised;
          tokens = tokens + promised
        };
#ifdef BROKEN_WAKE
        if :: promised > 0 -> futex_wake(promised - 1) :: else fi
#else
        futex_wake(promised)
#endif
     fi
  :: items == 0 -> break
  od
}

proctype monitor() {

  timeout ->
  assert(work == 0);
  assert(tokens == 0);
  assert(waiters == asleep[0] + asleep[1] + asleep[2])
}

init {
  atomic {
    run waiter(0); run waiter(1); run waiter(2);
    run waker(2, 1);                      /* wake() */
    run waker(1, 3);                      /* wake_all() */
    run monitor()
  }
}
