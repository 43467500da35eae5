/* expect: pass; with -DBROKEN_NO_WAKE: fail; with -DBROKEN_HELD: fail; with -DBROKEN_EARLY: fail; with -DBROKEN_CLOSE: fail; with -DBROKEN_INDEX_AT_ONCE: fail
 *
 * lumen::service::Catalog (src/service/catalog.cc: publish(), leave(), serve(); Reader: end_turn(), close()). One
 * model is removed while two threads look it up, hold it for requests that outlive a turn, and sleep; then another is
 * added, which gets its index (src/models/model_repository.cc: ModelIndices). A snapshot is a number: 0 has the first
 * model, 1 has none, 2 has the second. Requests count for an index. A thread sleeps on its loop's word `woken`
 * (loop_wake.pml), and a reply that was sent wakes it too.
 * A model whose place another takes, and a client's region of shared memory, leave by the same statements: each has its
 * own place in held_, and a snapshot names one place that leaves (serve(), leave(), remove_region()).
 * Shown: nobody looks at a snapshot, or holds a model, once it is freed; a request counts for its own model; and both
 * changes end.
 * BROKEN_NO_WAKE         the change wakes nobody
 * BROKEN_HELD            a turn acknowledges though requests hold the model
 * BROKEN_EARLY           a turn acknowledges before it has taken the new snapshot
 * BROKEN_CLOSE           a thread ends without closing its reader
 * BROKEN_INDEX_AT_ONCE   the index is given back when the snapshot without the model is published
 */
#define READERS 2
#define CLOSED 3
#define NONE 255

byte current = 0;
byte acknowledged[READERS];
bool woken[READERS];
bool replied[READERS];      /* the request that holds the model is answered: an event of the loop */
bool freed[3];              /* a snapshot, and the model that left with it */
byte index_of = 0;          /* the snapshot with the model that has the index now */
bool is_through = false;
byte ended = 0;

proctype reader(byte r) {
  byte snapshot = 0;
  byte told = 0;
  byte seen;
  byte looks = 2;
  byte holds = NONE;        /* the snapshot that the model was found in; held_[index] is 1 */
  do
  :: /* a turn: events */
     woken[r] = false;
     if
     :: replied[r] ->                                                       /* release() */
        replied[r] = false;
        assert(!freed[holds] && index_of == holds);
        holds = NONE
     :: else
     fi;
     if
     :: looks > 0 && holds == NONE ->
        looks--;
        assert(!freed[snapshot]);                                           /* now().find() */
        if
        :: snapshot != 1 -> holds = snapshot                                /* hold() */
        :: else
        fi
     :: true
     fi;
     /* end_turn() */
     seen = current;
     if
     :: seen != told ->
#ifdef BROKEN_EARLY
        acknowledged[r] = seen;
#endif
        snapshot = seen;
        if
#ifndef BROKEN_HELD
        :: seen == 1 && holds != NONE                                       /* the model that leaves is held */
#endif
        :: else -> told = seen; acknowledged[r] = seen
        fi
     :: else
     fi;
     if
     :: looks == 0 && holds == NONE -> break
     :: else
     fi;
     /* sleeps; a reply comes some time, another request perhaps */
     if
     :: woken[r]
     :: holds != NONE -> replied[r] = true
     :: looks > 0 && (current == 0 || is_through)
     fi
  od;
#ifndef BROKEN_CLOSE
  acknowledged[r] = CLOSED;
#endif
  ended++
}

inline publish(next) {
  current = next;
#ifndef BROKEN_NO_WAKE
  woken[0] = true;
  woken[1] = true;
#endif
  (acknowledged[0] == next || acknowledged[0] == CLOSED);
  (acknowledged[1] == next || acknowledged[1] == CLOSED)
}

proctype control() {
#ifdef BROKEN_INDEX_AT_ONCE
  index_of = 2;
#endif
  publish(1);                                                               /* remove() */
  freed[0] = true;
  index_of = 2;                                                             /* add() */
  publish(2);
  freed[1] = true;
  is_through = true
}

proctype monitor() {
  timeout -> assert(is_through)
}

init { atomic { run reader(0); run reader(1); run control(); run monitor() } }
