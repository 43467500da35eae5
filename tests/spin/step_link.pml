/* expect: pass; with -DBROKEN_NO_ALARM: fail; with -DBROKEN_TWO_LOCKS: fail; with -DBROKEN_DRAINS_FIRST: fail; with -DBROKEN_READY_LATER: fail; with -DBROKEN_STOP: fail
 *
 * The requests with a model's Python process (src/backends/python/step_link.cc: send(), take(), sleep(),
 * leave_process(), restart(), the destructor). Two threads start a request each, one with a deadline; the
 * process answers, ends, or says nothing to the request with a deadline. One step: a section under the
 * mutex. The bus's own sleep is bus_wait.pml's: here a reply, or the end of the process, ends the poll.
 * Shown: each request is completed once; the link's thread ends once it is told to; nothing is started
 * while the requests of a process that has ended are failed.
 *
 * BROKEN_NO_ALARM      send() does not ring for a deadline before the one that is slept for
 * BROKEN_TWO_LOCKS     sleep() reads the deadline, and says so in another section
 * BROKEN_DRAINS_FIRST  sleep() takes the alarm back before it polls
 * BROKEN_READY_LATER   leave_process() refuses new requests after it has failed those that were there
 * BROKEN_STOP          the destructor stores the wish and does not ring
 */
#define NEVER 9

mtype = { kFree, kSent, kAnswered, kTaken };
mtype place[2] = kFree;
byte deadline[2];
byte completions[2];
byte now = 0;
byte next_deadline = NEVER, sleeps_until = 0;
bool alarm = false, ended = false, is_ready = true, stop = false, link_has_ended = false;
byte starters = 2;

inline complete(i) { completions[i]++; assert(completions[i] == 1) }

proctype starter(byte me) {
  deadline[me] = (me == 0 -> 1 : NEVER);
  atomic {  /* start() */
    if
    :: !is_ready -> complete(me)  /* 503 */
    :: else ->
       place[me] = kSent;
       if :: deadline[me] < next_deadline -> next_deadline = deadline[me] :: else fi;
#ifndef BROKEN_NO_ALARM
       if :: deadline[me] < sleeps_until -> alarm = true :: else fi
#endif
    fi
  };
  completions[me] == 1;
  starters--
}

proctype process() {
  bool silent = false, died = false;
  do
  :: atomic { !ended && !silent && place[0] == kSent -> place[0] = kAnswered }
  :: atomic { !ended && place[1] == kSent -> place[1] = kAnswered }
  :: atomic { !ended && !died -> ended = true; died = true }
  :: atomic { !silent -> silent = true }  /* to the request with a deadline */
  :: stop -> break
  od
}

proctype clock() { now = 1 }

#define IS_OVER(i) (place[i] == kAnswered || (place[i] == kSent && deadline[i] <= now))

inline take() {
  d_step {
    taken = NEVER;
    if
    :: IS_OVER(0) -> taken = 0
    :: !IS_OVER(0) && IS_OVER(1) -> taken = 1
    :: else -> if :: now >= next_deadline -> next_deadline = NEVER :: else fi
    fi;
    if :: taken != NEVER -> place[taken] = kTaken :: else fi
  }
}

proctype link() {
  byte taken, until;
  do
  :: stop -> break
  :: else ->
     take();
     if
     :: taken != NEVER -> complete(taken); place[taken] = kFree
     :: else ->
        if
        :: ended ->  /* leave_process() */
#ifndef BROKEN_READY_LATER
           is_ready = false;
#endif
           taken = 0;
           do
           :: taken < 2 ->
              if
              :: place[taken] == kSent || place[taken] == kAnswered ->
                 place[taken] = kFree; complete(taken)
              :: else
              fi;
              taken++
           :: else -> break
           od;
#ifdef BROKEN_READY_LATER
           is_ready = false;
#endif
           atomic { ended = false; is_ready = true; next_deadline = NEVER }
        :: else ->  /* sleep() */
#ifdef BROKEN_TWO_LOCKS
           until = next_deadline;
           sleeps_until = until;
#else
           d_step { until = next_deadline; sleeps_until = until };
#endif
#ifdef BROKEN_DRAINS_FIRST
           alarm = false;
#endif
           (place[0] == kAnswered || place[1] == kAnswered || ended || alarm || now >= until);
#ifndef BROKEN_DRAINS_FIRST
           alarm = false;
#endif
           sleeps_until = 0
        fi
     fi
  od;
  link_has_ended = true
}

proctype destructor() {
  starters == 0;
  stop = true;
#ifndef BROKEN_STOP
  alarm = true
#endif
}

proctype monitor() {
  timeout ->
  assert(completions[0] == 1 && completions[1] == 1);
  assert(link_has_ended)
}

init {
  atomic {
    run starter(0); run starter(1); run process(); run clock(); run link(); run destructor(); run monitor()
  }
}
