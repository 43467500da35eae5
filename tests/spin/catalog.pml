/* expect: pass; with -DBROKEN_NO_WAKE: fail; with -DBROKEN_HELD: fail; with -DBROKEN_EARLY: fail; with -DBROKEN_CLOSE: fail
 *
 * lumen::service::Catalog (src/service/catalog.cc: publish(), remove(); Reader: end_turn(), close()). One
 * model is removed while two threads look it up, hold it for requests that outlive a turn, and sleep. A
 * snapshot is a number: 0 has the model, 1 has not. A thread sleeps on its loop's word `woken` (loop_wake.pml),
 * and a reply that was sent wakes it too.
 * Shown: nobody looks at snapshot 0, or holds the model, once it is freed; and the removal always ends.
 * BROKEN_NO_WAKE  the remover wakes nobody
 * BROKEN_HELD     a turn acknowledges though requests hold the model
 * BROKEN_EARLY    a turn acknowledges before it has taken the new snapshot
 * BROKEN_CLOSE    a thread ends without closing its reader
 */
#define READERS 2
#define CLOSED 2

byte current = 0;
byte acknowledged[READERS];
bool woken[READERS];
bool replied[READERS];      /* the request that holds the model is answered: an event of the loop */
bool freed = false;         /* the model and snapshot 0 */
bool is_removed = false;
byte ended = 0;

proctype reader(byte r) {
  byte snapshot = 0;
  byte told = 0;
  byte seen;
  byte looks = 2;
  bool holds = false;
  do
  :: /* a turn: events */
     woken[r] = false;
     if
     :: replied[r] -> replied[r] = false; assert(!freed); holds = false     /* release() */
     :: else
     fi;
     if
     :: looks > 0 && !holds ->
        looks--;
        assert(snapshot == 1 || !freed);                                    /* now().find() */
        if
        :: snapshot == 0 -> holds = true                                    /* hold() */
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
        :: holds
#endif
        :: else -> told = seen; acknowledged[r] = seen
        fi
     :: else
     fi;
     if
     :: looks == 0 && !holds -> break
     :: else
     fi;
     /* sleeps; a reply comes some time, another request perhaps */
     if
     :: woken[r]
     :: holds -> replied[r] = true
     :: looks > 0 && current == 0
     fi
  od;
#ifndef BROKEN_CLOSE
  acknowledged[r] = CLOSED;
#endif
  ended++
}

proctype remover() {
  current = 1;
#ifndef BROKEN_NO_WAKE
  woken[0] = true;
  woken[1] = true;
#endif
  (acknowledged[0] != 0);
  (acknowledged[1] != 0);
  freed = true;
  is_removed = true
}

proctype monitor() {
  timeout -> assert(is_removed)
}

init { atomic { run reader(0); run reader(1); run remover(); run monitor() } }
