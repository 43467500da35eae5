/* expect: pass; with -DBROKEN_TAKEN: fail; with -DBROKEN_LOOK: fail; with -DBROKEN_SLEEP: fail; with -DBROKEN_TRY: fail
 *
 * The lock of ChronoCache's writers (include/lumen/cache/detail/writer_lock.h): three threads take it
 * twice each. Every step on the word is one atomic action. notify_one() of the library makes a system
 * call only where it finds a waiter counted; wait() counts itself before the kernel compares.
 * Shown: never two threads inside, and once nothing can move, all are through (no lost wake-up).
 * BROKEN_TAKEN  a thread that had to wait takes the lock as one that did not
 * BROKEN_LOOK   unlock() looks at the count of waiters before it frees the word
 * BROKEN_SLEEP  wait() sleeps whatever the word is by then
 * BROKEN_TRY    try_lock() looks, and then takes
 */
#define THREADS 3
#define FREE 0
#define TAKEN 1
#define WAITED_FOR 2

byte state = FREE;
byte waiting = 0;  /* the library's count */
bool asleep[THREADS];
byte inside = 0;
byte through = 0;

inline exchange(before, value) { d_step { before = state; state = value } }

inline wake_one() {
  atomic {
    if
    :: asleep[0] -> asleep[0] = false
    :: asleep[1] -> asleep[1] = false
    :: asleep[2] -> asleep[2] = false
    :: else
    fi
  }
}

inline wait_for_change() {
  waiting++;
#ifdef BROKEN_SLEEP
  asleep[me] = true;
#else
  atomic { if :: state == WAITED_FOR -> asleep[me] = true :: else fi };
#endif
  !asleep[me];
  waiting--
}

inline lock() {
#ifdef BROKEN_TRY
  before = state;
  if :: before == FREE -> state = TAKEN :: else fi;
#else
  d_step { before = state; if :: before == FREE -> state = TAKEN :: else fi };
#endif
  if
  :: before == FREE
  :: else ->
     do
#ifdef BROKEN_TAKEN
     :: d_step { before = state; state = (before == FREE -> TAKEN : WAITED_FOR) };
#else
     :: exchange(before, WAITED_FOR);
#endif
        if
        :: before == FREE -> break
        :: else -> wait_for_change()
        fi
     od
  fi
}

inline unlock() {
#ifdef BROKEN_LOOK
  seen = waiting;
  exchange(before, FREE);
#else
  exchange(before, FREE);
  seen = waiting;
#endif
  if
  :: before == WAITED_FOR && seen > 0 -> wake_one()
  :: else
  fi
}

proctype writer(byte me) {
  byte before;
  byte seen;
  byte left = 2;
  do
  :: left > 0 ->
     lock();
     inside++;
     assert(inside == 1);
     inside--;
     unlock();
     left--
  :: left == 0 -> break
  od;
  through++
}

proctype monitor() {
  timeout ->
  assert(through == THREADS)
}

init {
  atomic {
    run writer(0); run writer(1); run writer(2);
    run monitor()
  }
}
