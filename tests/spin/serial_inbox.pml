/* expect: pass; with -DBROKEN_LOOKS_AND_LEAVES: fail; with -DBROKEN_TAKES_AND_LEAVES: fail; with -DBROKEN_WORKS_AT_BUSY: fail
 *
 * lumen::sequences::SerialInbox (src/sequences/serial_inbox.h): run() of three threads, of which two bring
 * two tasks each and one brings one.
 * Shown: each task is done once, one at a time, those of one thread in its order; and when all threads have
 * left, none is left behind.
 * BROKEN_LOOKS_AND_LEAVES  end() looks for new tasks and then stores nullptr
 * BROKEN_TAKES_AND_LEAVES  take() leaves nullptr behind, as a plain stack would
 * BROKEN_WORKS_AT_BUSY     a thread that finds busy() works, too
 */
#define THREADS 3
#define TASKS 5
#define IDLE 0
#define BUSY 255

byte newest = IDLE;       /* a task is 1 + its number */
byte next[TASKS + 1];     /* by task; 0: none */
byte done[TASKS + 1];
byte working = 0;
byte left = 0;

inline do_one(task) {
  working++;
  assert(working == 1);
  assert(done[task] == 0);
  /* 1 and 2 are of the first thread, 3 and 4 of the second */
  assert(task != 2 || done[1] == 1);
  assert(task != 4 || done[3] == 1);
  done[task] = 1;
  working--
}

proctype thread(byte first; byte count) {
  byte i = 0;
  byte seen, one, oldest, older;
  bool is_worker;
  do
  :: i < count ->
     /* leave() */
     seen = newest;
     do
     :: next[first + i] = (seen == BUSY -> 0 : seen);
        if
        :: atomic { newest == seen -> newest = first + i }; break
        :: atomic { newest != seen -> seen = newest }
        fi
     od;
#ifdef BROKEN_WORKS_AT_BUSY
     is_worker = (seen == IDLE || seen == BUSY);
#else
     is_worker = (seen == IDLE);
#endif
     i++;
     do
     :: is_worker ->
        /* take() */
#ifdef BROKEN_TAKES_AND_LEAVES
        d_step { one = newest; newest = IDLE };
        if
        :: one == BUSY -> one = 0
        :: else -> skip
        fi;
#else
        d_step { one = newest; newest = BUSY };
        if
        :: one == BUSY -> one = 0
        :: else -> skip
        fi;
#endif
        oldest = 0;
        do
        :: one != 0 -> older = next[one]; next[one] = oldest; oldest = one; one = older
        :: one == 0 -> break
        od;
        do
        :: oldest != 0 -> one = next[oldest]; do_one(oldest); oldest = one
        :: oldest == 0 -> break
        od;
        /* end() */
#ifdef BROKEN_LOOKS_AND_LEAVES
        if
        :: newest == BUSY -> newest = IDLE; is_worker = false
        :: newest != BUSY -> skip
        fi
#else
#ifdef BROKEN_TAKES_AND_LEAVES
        if
        :: newest == IDLE -> is_worker = false
        :: newest != IDLE -> skip
        fi
#else
        if
        :: atomic { newest == BUSY -> newest = IDLE }; is_worker = false
        :: newest != BUSY -> skip
        fi
#endif
#endif
     :: !is_worker -> break
     od
  :: i == count -> break
  od;
  left++
}

init {
  byte i;
  atomic {
    run thread(1, 2);
    run thread(3, 2);
    run thread(5, 1)
  };
  left == THREADS;
  assert(newest == IDLE);
  i = 1;
  do
  :: i <= TASKS -> assert(done[i] == 1); i++
  :: i > TASKS -> break
  od
}
