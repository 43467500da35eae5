/* expect: pass; with -DBROKEN_ORDER: fail; with -DBROKEN_LOOK: fail; with -DBROKEN_CLASS: fail
 *
 * The single waiting place of lumen::ThreadPipeline (include/lumen/queue/waiting_place.h and
 * thread_pipeline.h): one producer, a ring of two slots, two stages of one thread each
 * (with a second thread in stage 1 no error shows in 90 million states, where the search was stopped).
 * Stages sleep in class IDLE while nothing is in flight before them (a push wakes it), stage 1 in
 * class LAGGING while its predecessor works on something (stage 0 wakes it), the producer in class
 * SPACE (the last stage alone wakes it). All these operations are seq_cst in the code, so each step
 * here is one atomic action. The kernel wakes all sleepers of the woken classes, as FUTEX_WAKE_BITSET
 * does; a sleeper whose epoch is out of date does not fall asleep.
 * Shown: once nothing can move, every item has passed through both stages, each exactly once.
 * BROKEN_ORDER  prepare() sets its bit first and reads the epoch after
 * BROKEN_LOOK   no second look between prepare() and the sleep
 * BROKEN_CLASS  stage 1 sleeps in IDLE even while its predecessor works (nobody wakes it then)
 */
#define ITEMS 3
#define SLOTS 2
#define THREADS 3      /* producer, stage 0, stage 1 */
#define IDLE 1
#define LAGGING 2
#define SPACE 4

byte epoch = 0;
byte asleep_bits = 0;
byte sleeping_in[THREADS];   /* 0: awake, else the class it sleeps in */

byte tail = 0;               /* pushed */
byte done0 = 0;              /* through stage 0 */
byte claim1 = 0;             /* claimed by a thread of stage 1 */
bool mark[ITEMS];            /* through stage 1 */

#define freed (mark[0] -> (mark[1] -> (mark[2] -> 3 : 2) : 1) : 0)

inline prepare(class) {
#ifdef BROKEN_ORDER
  asleep_bits = asleep_bits | class;
  ticket = epoch
#else
  ticket = epoch;
  asleep_bits = asleep_bits | class
#endif
}

inline sleep(me, class) {    /* FUTEX_WAIT_BITSET: compares the word and sleeps, at once */
  atomic {
    if
    :: epoch != ticket
    :: else -> sleeping_in[me] = class
    fi
  };
  atomic { (sleeping_in[me] == 0) -> ticket = 0 }   /* a dead local: fewer states */
}

inline wake(me, classes) {
  if :: (sleeping_in[me] & (classes)) -> sleeping_in[me] = 0 :: else fi
}

inline wake_classes(classes) {
  if
  :: (asleep_bits & (classes)) == 0
  :: else ->
     atomic { woken = asleep_bits & (classes); asleep_bits = asleep_bits & ~(classes) };
     if
     :: woken == 0
     :: else ->
        epoch++;
        d_step { wake(0, woken); wake(1, woken); wake(2, woken); woken = 0 }
     fi
  fi
}

proctype producer() {
  byte ticket; byte woken;
  do
  :: tail == ITEMS -> break
  :: else ->
     if
     :: tail < freed + SLOTS -> tail++; wake_classes(IDLE)
     :: else ->
        prepare(SPACE);
#ifndef BROKEN_LOOK
        if
        :: tail < freed + SLOTS -> ticket = 0
        :: else -> sleep(0, SPACE)
        fi
#else
        sleep(0, SPACE)
#endif
     fi
  od
}

proctype stage0() {
  byte ticket; byte woken;
  do
  :: if
     :: done0 < tail -> done0++; wake_classes(LAGGING)
     :: else ->
        prepare(IDLE);
        if
#ifndef BROKEN_LOOK
        :: done0 < tail -> ticket = 0
        :: else ->
#else
        :: true ->
#endif
           sleep(1, IDLE)
        fi
     fi
  od
}

proctype stage1(byte me) {
  byte ticket; byte woken; byte mine; byte class;
  do
  :: atomic {
       if
       :: claim1 < done0 -> mine = claim1; claim1++
       :: else -> mine = ITEMS
       fi
     };
     if
     :: mine < ITEMS ->
        assert(!mark[mine]);
        atomic { mark[mine] = true; mine = 0 };
        wake_classes(SPACE)
     :: else ->
#ifdef BROKEN_CLASS
        class = IDLE;
#else
        class = (claim1 == tail -> IDLE : LAGGING);
#endif
        prepare(class);
        if
#ifndef BROKEN_LOOK
        :: claim1 < done0 -> ticket = 0                          /* something to do */
#ifndef BROKEN_CLASS
        :: claim1 >= done0 && class == IDLE && claim1 != tail -> ticket = 0    /* the wrong class by now */
#endif
        :: else ->
#else
        :: true ->
#endif
           sleep(me, class)
        fi
     fi
  od
}

proctype monitor() {
  byte i;

  timeout ->
  assert(tail == ITEMS && done0 == ITEMS);
  for (i : 0 .. ITEMS - 1) { assert(mark[i]) }
}

init {
  atomic {
    run producer(); run stage0(); run stage1(2); run monitor()
  }
}
