/* expect: pass; with -DBROKEN_NO_ALARM: fail; with -DBROKEN_TWO_LOCKS: fail; with -DBROKEN_DRAINS_FIRST: fail; with -DBROKEN_READY_LATER: fail; with -DBROKEN_STOP: fail; with -DBROKEN_ROOM: fail; with -DBROKEN_WAITS_SILENTLY: fail
 *
 * The requests with a model's Python process (src/backends/python/step_link.cc: start(), take(),
 * complete_waiting(), sleep(), leave_process(), restart(), the destructor; waiting_line.h). Two threads
 * start a request each, one with a deadline; the ring has room for one. The process takes a request, drops
 * it where it is late, answers it, or says nothing more to the one with a deadline; or it ends. One step: a section
 * under the mutex. The bus's own sleeps, for a reply and for room, are bus_wait.pml's: here a reply, or room
 * that was asked for, ends the poll.
 * Shown: each request is completed once, whatever it waits for; the link's thread ends once it is told to;
 * nothing is started while the requests of a process that has ended are failed.
 *
 * BROKEN_NO_ALARM         send() does not ring for a deadline before the one that is slept for
 * BROKEN_TWO_LOCKS        sleep() reads the deadline, and says so in another section
 * BROKEN_DRAINS_FIRST     sleep() takes the alarm back before it polls
 * BROKEN_READY_LATER      leave_process() refuses new requests after it has failed those that were there
 * BROKEN_STOP             the destructor stores the wish and does not ring
 * BROKEN_ROOM             sleep() looks for room before it asks to be told of it
 * BROKEN_WAITS_SILENTLY   start() does not ring for a request that begins to wait
 */
#define NEVER 9

mtype = { kFree, kWaiting, kSent, kRunning, kAnswered, kTaken };
mtype place[2] = kFree;
byte deadline[2];
byte completions[2];
byte now = 0;
byte next_deadline = NEVER, sleeps_until = 0;
bool alarm = false, ended = false, is_ready = true, stop = false, link_has_ended = false;
bool ring_is_full = false, asks_for_room = false, room_bell = false;
byte starters = 2;

#define WANTS_ROOM (place[0] == kWaiting || place[1] == kWaiting)

inline complete(i) { completions[i]++; assert(completions[i] == 1) }

inline send(i) {
  place[i] = kSent;
  ring_is_full = true;
  if :: deadline[i] < next_deadline -> next_deadline = deadline[i] :: else fi;
#ifndef BROKEN_NO_ALARM
  if :: deadline[i] < sleeps_until -> alarm = true :: else fi
#endif
}

proctype starter(byte me) {
  deadline[me] = (me == 0 -> 1 : NEVER);
  atomic {  /* start() */
    if
    :: !is_ready -> complete(me)  /* 503 */
    :: is_ready && !WANTS_ROOM && !ring_is_full -> send(me)
    :: else ->
       place[me] = kWaiting;
#ifndef BROKEN_WAITS_SILENTLY
       if :: sleeps_until != 0 -> alarm = true :: else fi
#endif
    fi
  };
  completions[me] == 1;
  starters--
}

inline give_room_back() {
  ring_is_full = false;
  if :: asks_for_room -> room_bell = true :: else fi
}

proctype process() {
  bool silent = false, died = false;
  do
  :: atomic { !ended && place[0] == kSent && now < deadline[0] -> place[0] = kRunning; give_room_back() }
  :: atomic { !ended && place[1] == kSent -> place[1] = kRunning; give_room_back() }
  :: atomic { !ended && ring_is_full && place[1] != kSent && now >= deadline[0] -> give_room_back() }  /* late: no reply */
  :: atomic { !ended && !silent && place[0] == kRunning -> place[0] = kAnswered }
  :: atomic { !ended && place[1] == kRunning -> place[1] = kAnswered }
  :: atomic { !ended && !died -> ended = true; died = true }
  :: atomic { !silent -> silent = true }  /* to the request with a deadline */
  :: stop -> break
  od
}

proctype clock() { now = 1 }

#define IS_WITH(i) (place[i] == kSent || place[i] == kRunning)
#define IS_OVER(i) (place[i] == kAnswered || (IS_WITH(i) && deadline[i] <= now))

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

inline complete_waiting() {  /* one of those that wait is late, or there is room for one */
  atomic {
    taken = NEVER;
    if
    :: place[0] == kWaiting && deadline[0] <= now -> taken = 0; place[0] = kTaken
    :: place[0] == kWaiting && deadline[0] > now && !ring_is_full -> send(0)
    :: place[0] != kWaiting && place[1] == kWaiting && !ring_is_full -> send(1)
    :: else
    fi
  };
  if :: taken != NEVER -> complete(taken); place[taken] = kFree :: else fi
}

proctype link() {
  byte taken, until;
  bool awaits_room, has_room;
  do
  :: stop -> break
  :: else ->
     take();
     if
     :: taken != NEVER -> complete(taken); place[taken] = kFree
     :: else ->
        complete_waiting();
        if
        :: taken != NEVER
        :: taken == NEVER && ended ->  /* leave_process() */
#ifndef BROKEN_READY_LATER
           is_ready = false;
#endif
           taken = 0;
           do
           :: taken < 2 ->
              if
              :: place[taken] != kFree -> place[taken] = kFree; complete(taken)
              :: else
              fi;
              taken++
           :: else -> break
           od;
#ifdef BROKEN_READY_LATER
           is_ready = false;
#endif
           atomic { ended = false; ring_is_full = false; is_ready = true; next_deadline = NEVER }
        :: else ->  /* sleep() */
           room_bell = false;
#ifdef BROKEN_TWO_LOCKS
           until = (place[0] == kWaiting && deadline[0] < next_deadline -> deadline[0] : next_deadline);
           atomic { awaits_room = WANTS_ROOM; asks_for_room = awaits_room; has_room = awaits_room && !ring_is_full };
           sleeps_until = until;
#else
#ifdef BROKEN_ROOM
           has_room = WANTS_ROOM && !ring_is_full;
#endif
           atomic {
             awaits_room = WANTS_ROOM;
             asks_for_room = awaits_room;
#ifndef BROKEN_ROOM
             has_room = awaits_room && !ring_is_full;
#endif
             until = (place[0] == kWaiting && deadline[0] < next_deadline -> deadline[0] : next_deadline);
             sleeps_until = until
           };
#endif
#ifdef BROKEN_DRAINS_FIRST
           alarm = false;
#endif
           (has_room || place[0] == kAnswered || place[1] == kAnswered || ended || alarm || room_bell || now >= until);
#ifndef BROKEN_DRAINS_FIRST
           alarm = false;
#endif
           atomic { sleeps_until = 0; asks_for_room = false }
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
