/* expect: pass; with -DWORKER: pass; with -DBROKEN_WAITS_FOR_THREAD: fail; with -DBROKEN_REORDERED: fail; with -DBROKEN_NO_COUNT: fail; with -DBROKEN_EARLY_BELL: fail; with -DWORKER_EARLY_BELL: fail; with -DBROKEN_FAILED_IS_DONE: fail
 *
 * A backend's thread completes what lumen::engine::Runner started (src/engine/runner.cc: start_batch(), note_pending(),
 * on_batch_done(), leave_callback(), take_back_failed_batches(), run(), has_news(), is_done()). One slot with room for
 * one call; three requests, one of which may fail as a batch and is then run again.
 * Its owner is an I/O thread (`inline`), which may end once every reply is out, after which a drain
 * finishes (Scheduler::finish()); with WORKER a worker, which parks on its doorbell (doorbell.pml's: here
 * a bell that wakes only whoever has announced itself) and ends after the engine was closed.
 * Shown: the batch is not packed while a callback still reads it, nothing of the runner is touched once it
 * is gone, every request is completed once, and once nothing can move the drain is through.
 * BROKEN_WAITS_FOR_THREAD  the drain waits for the I/O thread, which is gone: the code before
 * BROKEN_REORDERED         in_flight drops before complete(), which alone would mend that
 * BROKEN_NO_COUNT          is_done() does not look at callbacks_inside_
 * BROKEN_FAILED_IS_DONE    the callback of a failed batch counts its call as back
 * BROKEN_EARLY_BELL, WORKER_EARLY_BELL  on_room() before in_flight drops
 */
#ifdef WORKER_EARLY_BELL
#define WORKER
#define BROKEN_EARLY_BELL
#endif
#define REQUESTS 3

byte waiting = REQUESTS;
byte in_flight = 0;
byte completed = 0;
byte completions = 0;
byte completions_seen = 0;
byte callbacks_inside = 0;
short pending = 0;           /* calls that are out; -1 for a moment where a callback is quicker than note_pending() */
bool failed = false;         /* the list of failed batches */
bool may_fail = true;
bool on_device = false;
bool batch_in_use = false;   /* by a callback */
bool gone = false;           /* the runner */
bool thread_left = false;
bool is_through = false;
#ifdef WORKER
bool announced = false;
bool woken = false;
bool closed = false;
inline bell() { atomic { if :: announced -> announced = false; woken = true :: else fi } }
#else
bool woken = false;          /* the loop's word, kWoken */
inline bell() { woken = true }
#endif

inline run_calls() {
  if                         /* take_back_failed_batches() */
  :: completions_seen != completions ->
     completions_seen = completions;
     if
     :: failed -> failed = false; waiting++; assert(!batch_in_use); in_flight--; pending--
     :: else
     fi
  :: else
  fi;
  if
  :: waiting > 0 && in_flight == 0 ->
     assert(!batch_in_use);  /* pack() */
     waiting--;
     in_flight++;
     on_device = true;       /* start() */
     pending++               /* note_pending() */
  :: else
  fi
}

proctype device() {
  do
  :: on_device ->
     on_device = false;
     assert(!gone);
     callbacks_inside++;
     batch_in_use = true;
     if
     :: may_fail -> may_fail = false;
        batch_in_use = false;
        failed = true;                   /* pushed to the list; leave_callback(nullptr) */
#ifdef BROKEN_FAILED_IS_DONE
        pending--;
#endif
#ifdef BROKEN_EARLY_BELL
        bell()
#endif
     :: true ->
#ifdef BROKEN_REORDERED
        in_flight--;
#endif
        completed++;                     /* complete() of the members */
#ifndef WORKER
        woken = true;                    /* wake() of their sinks */
#endif
        batch_in_use = false;            /* reset() */
        assert(!gone);
#ifdef BROKEN_EARLY_BELL
        bell();
#endif
#ifndef BROKEN_REORDERED
        in_flight--;                     /* leave_callback() */
#endif
        assert(!gone);
        pending--
     fi;
     assert(!gone);
     completions++;
#ifndef BROKEN_EARLY_BELL
     assert(!gone);
     bell();
#endif
     assert(!gone);
     callbacks_inside--
  od
}

inline wait_for_callbacks() {
#ifndef BROKEN_NO_COUNT
  callbacks_inside == 0
#else
  skip
#endif
}

#ifndef WORKER
proctype io_thread() {
  do
  :: woken = false;                      /* served() */
     run_calls();
     if
     :: completed == REQUESTS -> break   /* every reply is out and every connection closed */
     :: else -> woken                    /* sleeps */
     fi
  od;
  thread_left = true
}

proctype drain() {
  byte seen;
  thread_left;                           /* joined */
  if
  :: waiting == 0 && pending == 0 -> wait_for_callbacks()
  :: else ->
#ifdef BROKEN_WAITS_FOR_THREAD
     false
#else
     do                                  /* finish() */
     :: seen = completions;
        run_calls();
        if
        :: waiting == 0 && pending == 0 -> wait_for_callbacks(); break
        :: else -> completions != seen
        fi
     od
#endif
  fi;
  gone = true;
  is_through = true
}
#else
#define HAS_NEWS (completions != completions_seen && (waiting > 0 || failed))

proctype worker() {
  byte before;
  do
  :: before = waiting;
     run_calls();
     if
     :: before != waiting                /* did something: once more */
     :: else ->
        if
        :: closed && waiting == 0 && pending == 0 -> wait_for_callbacks(); break
        :: else
        fi;
        announced = true;                /* park(): prepare() */
        if
        :: HAS_NEWS -> atomic { announced = false; woken = false }
        :: closed && waiting == 0 && pending == 0 -> atomic { announced = false; woken = false }
        :: else -> atomic { woken -> woken = false }
        fi
     fi
  od;
  thread_left = true
}

proctype drain() {
  closed = true;
  bell();
  thread_left;                           /* joined */
  gone = true;
  is_through = true
}
#endif

proctype monitor() {
  timeout ->
  assert(is_through);
  assert(completed == REQUESTS && waiting == 0)
}

init {
  atomic {
    run device();
#ifdef WORKER
    run worker();
#else
    run io_thread();
#endif
    run drain(); run monitor()
  }
}
