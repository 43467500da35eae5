/* expect: pass; with -DBROKEN_WAITS_FOR_THREAD: fail; with -DBROKEN_NO_TAKEOVER: fail; with -DBROKEN_READS_FIRST: fail; with -DBROKEN_NO_LOOK: fail; with -DBROKEN_ANNOUNCES_LATE: fail
 *
 * The change from one scheduler to the next with the queue types `inline` and `auto` (src/engine/engine.cc: enter(),
 * end_turn(), help_retire(), close(), retire(), replace(); src/engine/scheduler.cc: end_turn(), wake_workers(), announce_all(), close();
 * src/engine/inline_lane.cc: end_turn(), finish(); src/engine/queue_lane.cc: announce_all(), close()). Two submitters submit, turn and leave when they like, and push to a worker or run
 * the request themselves; one change and then a drain by the control plane. A model may complete
 * later, on a thread of its own, one call at a time for each scheduler and submitter, and needs what the worker has
 * first (two models may share a device). A worker finds only requests that were announced.
 * The loop that a wake wakes is loop_wake.pml's: here a flag that stays until the turn that serves it.
 * Shown: nobody uses a scheduler that is gone, and once nothing can move the change and the drain are
 * through and nothing that was accepted waits.
 * BROKEN_WAITS_FOR_THREAD  a thread that leaves tells nobody, and retire() waits for it: the code before
 * BROKEN_NO_TAKEOVER       retire() returns when the thread has left, and runs nothing
 * BROKEN_READS_FIRST       a submitter reads the current scheduler before it marks itself inside
 * BROKEN_NO_LOOK           the change does not wait until the submitters are outside
 * BROKEN_ANNOUNCES_LATE    the change announces the requests in queues once the submitters are retired: the code before
 */
#define SUBMITTERS 2
#define NONE 0
#define OLD 1
#define NEXT 2
#define GONE 3
#define AT(scheduler, s) ((scheduler) * SUBMITTERS + (s))

byte current = OLD;
bool inside[SUBMITTERS];
byte retiring[SUBMITTERS];
bool woken[SUBMITTERS];
bool freed[3];
byte waiting[6];     /* [scheduler][submitter] */
byte in_flight[6];
bool on_device[6];
byte queue[3];        /* [scheduler]: requests for its worker */
bool announced[3];   /* the queue's bit */
bool has_pushed[6];  /* [scheduler][submitter]: and not announced */
bool is_through = false;

#define IS_DONE(scheduler, s) (waiting[AT(scheduler, s)] == 0 && in_flight[AT(scheduler, s)] == 0)

inline enter(s, scheduler) {
#ifdef BROKEN_READS_FIRST
  scheduler = current;
  inside[s] = true;
#else
  inside[s] = true;
  scheduler = current;
#endif
}

/* wake_workers() */
inline announce(scheduler, s) {
  atomic {
    assert(!freed[scheduler]);
    if
    :: has_pushed[AT(scheduler, s)] -> has_pushed[AT(scheduler, s)] = false; announced[scheduler] = true
    :: else
    fi
  }
}

/* One owner at a time, so one step; the model answers at once or later. */
inline run_calls(scheduler, s) {
  atomic {
    assert(!freed[scheduler]);
    if
    :: waiting[AT(scheduler, s)] > 0 && in_flight[AT(scheduler, s)] == 0 ->
       waiting[AT(scheduler, s)]--;
       if
       :: true
       :: in_flight[AT(scheduler, s)]++; on_device[AT(scheduler, s)] = true
       fi
    :: else
    fi
  }
}

proctype submitter(byte s) {
  byte scheduler;
  byte submits = 1;
  do
  :: submits > 0 ->                                  /* submit() */
     submits--;
     enter(s, scheduler);
     if
     :: scheduler != NONE ->
        atomic {
          assert(!freed[scheduler]);
          if
          :: waiting[AT(scheduler, s)]++
          :: queue[scheduler]++; has_pushed[AT(scheduler, s)] = true
          fi
        }
     :: else
     fi;
     inside[s] = false;
     woken[s] = true                                 /* end_turn() follows in this turn */
  :: woken[s] ->                                     /* end_turn() */
     woken[s] = false;
     enter(s, scheduler);
     if :: scheduler != NONE -> announce(scheduler, s); run_calls(scheduler, s) :: else fi;
     inside[s] = false;
     scheduler = retiring[s];                        /* help_retire() */
     if
     :: scheduler != NONE ->
        announce(scheduler, s);
        run_calls(scheduler, s);
        if
        :: IS_DONE(scheduler, s) -> retiring[s] = NONE
        :: else
        fi
     :: else
     fi
  :: true -> break                                   /* close() */
  od;
#ifndef BROKEN_WAITS_FOR_THREAD
  retiring[s] = GONE
#endif
}

proctype device(byte scheduler; byte s) {
  do
  :: on_device[AT(scheduler, s)] && queue[scheduler] == 0 ->
     on_device[AT(scheduler, s)] = false;
     in_flight[AT(scheduler, s)]--;
     woken[s] = true                                 /* on_room(); its own end is runner_callbacks.pml's */
  od
}

proctype worker(byte scheduler) {
  do
  :: atomic {
       announced[scheduler] ->
       assert(!freed[scheduler]);
       if
       :: queue[scheduler] > 0 -> queue[scheduler]--
       :: else -> announced[scheduler] = false        /* the bit of an empty ring */
       fi
     }
  od
}

inline retire(scheduler, s) {
  if
  :: IS_DONE(scheduler, s)
  :: else ->
#ifdef BROKEN_WAITS_FOR_THREAD
     retiring[s] = scheduler;
     woken[s] = true;
     retiring[s] != scheduler;
#else
     took = false;
     atomic { if :: retiring[s] == NONE -> retiring[s] = scheduler; took = true :: else fi };
     if
     :: took -> woken[s] = true; retiring[s] != scheduler
     :: else
     fi;
     if
     :: retiring[s] == GONE ->
#ifndef BROKEN_NO_TAKEOVER
        do                                           /* finish() */
        :: IS_DONE(scheduler, s) -> break
        :: else ->
           run_calls(scheduler, s);
           in_flight[AT(scheduler, s)] == 0          /* until a call has come back */
        od
#else
        skip
#endif
     :: else
     fi
#endif
  fi
}

inline replace(before, next) {
  current = next;
#ifndef BROKEN_NO_LOOK
  !inside[0];
  !inside[1];
#endif
#ifndef BROKEN_ANNOUNCES_LATE
  announced[before] = true;                          /* announce_all() */
#endif
  retire(before, 0);
  retire(before, 1);
  announced[before] = true;                          /* close(): joins the worker */
  queue[before] == 0 && !announced[before];
  atomic { assert(IS_DONE(before, 0) && IS_DONE(before, 1)); freed[before] = true }
}

proctype control() {
  bool took;
  replace(OLD, NEXT);
  replace(NEXT, NONE);
  is_through = true
}

proctype monitor() {
  timeout ->
  assert(is_through)
}

init {
  atomic {
    run submitter(0); run submitter(1);
    run device(OLD, 0); run device(OLD, 1); run device(NEXT, 0); run device(NEXT, 1);
    run worker(OLD); run worker(NEXT);
    run control(); run monitor()
  }
}
