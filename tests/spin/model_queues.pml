/* expect: pass; with -DTWO_SUBMITTERS: pass; with -DAPART: pass; with -DCLOSE: pass; with -DBROKEN_CLOSE: fail; with -DBROKEN_NO_SECOND_LOOK: fail; with -DBROKEN_CLEAR_AFTER_LAST_LOOK: fail; with -DBROKEN_ANNOUNCE_IF_CLEAR: fail; with -DBROKEN_MARK_FIRST: fail; with -DBROKEN_WAKE_FIRST: fail; with -DBROKEN_FINDER: fail; with -DBROKEN_STALE_LOOK: fail
 *
 * ModelQueues (src/engine/model_queues.h) under Sleepers (src/engine/sleepers.h): two rings, a bit for each that says "may have
 * work" (here a mark), two workers that clear the marks of empty rings before they sleep. Two requests, from one
 * submitter, in one turn or in two, to one queue or to two; worker 0 polls, one sleep may end by a deadline; the marks
 * begin set though the rings are empty, or clear; of two queues also in a word of its own each. Or from two submitters,
 * and one mark begins set. A worker that runs a request may do so for ever.
 * Shown, once nothing can move: no request that can be taken lies in a queue beside a worker that sleeps; and each
 * such queue is marked, so that who comes back from a run finds it.
 *
 * Where a step here is less than a statement of the code, or more:
 *   tidy()      as in the code; its second look reads the tail and then the head, on which it all rests
 *   try_pop()   a step for each queue, in any order, each tried once. A marked queue's request is taken; that of a
 *               queue not marked may be (it was, a moment ago). So any policy is one of those here, and
 *               try_take_like(), which asks no mark. A queue was seen empty, or not marked: the same as no request.
 *   push()      its own fetch_or comes or not: the load before it is relaxed. With APART, for its size, never.
 *   park()      prepare and the sleeper's bit in one step, also the wait's end and the bit: sleepers.pml has each.
 *               The take that follows a wake and the passing on are shared by both ends of it
 *   pass_on()   one read of the sleepers' bits, not a load and then a read-modify-write
 * Spin's memory is sequentially consistent, see sleepers.pml. Two variants say what would go wrong in the code's.
 * TWO_SUBMITTERS               one request each, the same queue; worker 0 polls
 * APART                        one request each, in different queues; nobody polls
 * CLOSE                        one submitter, which may leave without its announce(), then close(): all workers leave
 *                              and no request is left
 * BROKEN_CLOSE                 the code as it was: in park() a closed engine was a reason not to sleep only where no
 *                              marked queue had any. One was not marked at the last look, since another worker was in
 *                              tidy(), and was when the reason was asked; that one took its request and left
 * BROKEN_NO_SECOND_LOOK        tidy() clears and does not look again
 * BROKEN_CLEAR_AFTER_LAST_LOOK tidy() after the last look; so does who may take none, and so looks not at all
 * BROKEN_ANNOUNCE_IF_CLEAR     announce() sets nothing that it sees set. In Spin's memory that is right; in the code's
 *                              the load may be answered before the push is seen by others, and so it is here
 * BROKEN_MARK_FIRST            the mark before the push, not after
 * BROKEN_WAKE_FIRST            wake() before announce()
 * BROKEN_FINDER                who found a request at its last look and was not woken does not pass the wake on. In
 *                              sleepers.pml that does no harm: here a wake may have passed by what tidy() had hidden
 * BROKEN_STALE_LOOK            the same where the sleepers' bits are in two words (more than 64 workers): the relaxed
 *                              load of pass_on() is answered before tidy() has set the mark again
 */
#define WORKERS 2
#define QUEUES 2
#define MOST_SEARCHERS 1
#define SECOND_WORD 4          /* in seen_marks: the second word is still to be loaded */

#ifdef BROKEN_CLOSE
#define CLOSE
#endif
#ifdef APART
#define SETS_NONE_EARLY
#endif
#ifdef BROKEN_MARK_FIRST
#define SETS_NONE_EARLY
#endif

byte tail[QUEUES];              /* claimed by submitters */
byte head[QUEUES];              /* claimed by workers */
byte published[QUEUES];         /* a bit a place */
byte marks = 0;                /* a bit a queue */
bool two_words = false;        /* each mark in a word of its own */
byte bits = 0;                 /* a bit a sleeper */
short searching = 0;
byte bell[WORKERS];            /* 0: nobody, 1: a waiter, 2: a token for it */
byte timeouts_left = 0;
byte submitters = 1;           /* that have not left */
bool closed = false;

#define mask(i) (1 << (i))
#define size(l) (tail[l] - head[l])
#define takeable(l) (head[l] < tail[l] && (published[l] & mask(head[l])) != 0)
#define asleep(w) (bell[w] == 1)           /* once nothing can move */

/* for_each_marked(): the word of marks, then one queue after the other. */
#define first_word (two_words -> (marks & 1) | SECOND_WORD : marks)
#define is_any_marked ((seen_marks & 3) != 0)
#define is_second_due (seen_marks == SECOND_WORD)
#define second_word (marks & 2)

inline next_marked() {
  queue = ((seen_marks & 1) -> 0 : 1);
  seen_marks = seen_marks & ~mask(queue)
}

inline try_queue(got) {
  if
  :: takeable(queue) -> head[queue]++; got = true
  :: !takeable(queue) || !(marks & mask(queue)) -> got = false
  fi
}

inline try_pop(got) {
  atomic { if :: queue = 0 :: queue = 1 fi; try_queue(got); queue = 1 - queue };
  atomic { if :: got :: else -> try_queue(got) fi; queue = 0 }
}

inline tidy() {
  seen_marks = first_word;
  do
  :: d_step { is_any_marked -> next_marked(); waiting = size(queue) };
     if
     :: d_step { waiting == 0 -> marks = marks & ~mask(queue) };
#ifndef BROKEN_NO_SECOND_LOOK
        seen_tail = tail[queue];
        atomic {
          waiting = (seen_tail > head[queue] -> 1 : 0);
          seen_tail = 0;
#ifdef BROKEN_STALE_LOOK
          if :: waiting != 0 -> seen_others = bits :: else fi
#endif
        };
        if
        :: d_step { waiting != 0 -> marks = marks | mask(queue); waiting = 0 }
        :: else
        fi
#endif
     :: else -> waiting = 0
     fi
  :: is_second_due -> seen_marks = second_word
  :: atomic { seen_marks == 0 -> queue = 0; break }
  od
}

inline wake(count) {
  atomic { most = count; seen = bits };                  /* fetch_or(0) */
  do
  :: atomic { seen == 0 || most == 0 -> seen = 0; most = 0; break }
  :: d_step { seen != 0 && most != 0 -> seen_marks = first_word };      /* is_short_of_workers() */
     do
     :: d_step { is_any_marked -> next_marked(); requests = requests + size(queue); queue = 0 }
     :: is_second_due -> seen_marks = second_word
     :: atomic { seen_marks == 0 -> is_short = (requests > searching); requests = 0; break }
     od;
     if
     :: d_step {
          is_short -> is_short = false;
          which = ((seen & 1) -> 0 : 1);
          seen = seen & ~mask(which);
          was = bits & mask(which);
          bits = bits & ~mask(which)
        };
        if
        :: d_step { was != 0 -> was = 0; searching++ };
           d_step { if :: bell[which] == 1 -> bell[which] = 2 :: else fi; which = 0; most-- }
        :: d_step { was == 0 -> which = 0 }
        fi
     :: d_step { !is_short -> seen = 0 }
     fi
  od
}

inline pass_on_if(got) {
  if :: got -> wake(1) :: else fi
}

inline try_take(got) {
  try_pop(got);
  pass_on_if(got)
}

inline may_leave() {
  if
  :: d_step { closed -> seen_marks = first_word; leaves = true };
     do
     :: d_step { is_any_marked -> next_marked(); if :: size(queue) > 0 -> leaves = false :: else fi; queue = 0 }
     :: is_second_due -> seen_marks = second_word
     :: seen_marks == 0 -> break
     od
  :: !closed
  fi
}

inline has_reason() {
#ifdef BROKEN_CLOSE
  may_leave()
#else
  leaves = closed
#endif
}

inline park(me, got) {
  tidy();
  atomic { bell[me] = 1; bits = bits | mask(me) };      /* prepare(), and the bit */
  try_pop(got);
#ifdef BROKEN_CLEAR_AFTER_LAST_LOOK
  tidy();
#endif
#ifdef CLOSE
  if :: got :: else -> has_reason() fi;
#endif
  atomic {
    if
    :: got                                              /* cancel() */
    :: !got && leaves -> leaves = false
    :: !got && !leaves && bell[me] == 2
    :: !got && !leaves && timeouts_left > 0 -> timeouts_left--
    fi;
    bell[me] = 0;
    woken = ((bits & mask(me)) == 0);
    bits = bits & ~mask(me)
  };
  if
  :: d_step { woken -> woken = false; searching-- };
     if :: got :: else -> try_pop(got) fi;
     pass_on_if(got)
  :: !woken ->
#ifdef BROKEN_FINDER
     skip
#else
#ifdef BROKEN_STALE_LOOK
     pass_on_if(got && (seen_others & ~mask(me)) != 0)
#else
     pass_on_if(got)
#endif
#endif
  fi;
#ifdef BROKEN_STALE_LOOK
  seen_others = 3
#endif
}

proctype worker(byte me; bool polls) {
  bool got; bool woken; bool leaves; bool is_short;
  byte seen_marks; byte queue; byte seen_tail; byte waiting;
  byte seen; byte most; byte requests; byte which; byte was;
  byte seen_others = 3;        /* all that there may be */
  do
  :: try_take(got);
#ifdef CLOSE
     if :: got :: else -> may_leave() fi;
     if :: leaves -> break :: else fi;
#endif
     if
     :: !got && polls ->                   /* begin_search() */
        if
        :: d_step { searching < MOST_SEARCHERS -> searching++ };
           searching--;                    /* whenever: it polls for as long as it likes */
           try_take(got)
        :: d_step { searching >= MOST_SEARCHERS -> searching++ };
           searching--
        fi
     :: got || !polls
     fi;
     if :: got :: else -> park(me, got) fi;
     if
     :: got ->
        got = false;
#ifndef CLOSE
        if :: true :: true -> break fi      /* runs it, perhaps for ever */
#endif
     :: else
     fi
  od
}

inline push(l) {
#ifdef BROKEN_ANNOUNCE_IF_CLEAR
  was_marked = was_marked | (marks & mask(l));
#endif
#ifdef BROKEN_MARK_FIRST
  marks = marks | mask(l);
#endif
  d_step { place = tail[l]; tail[l]++ };
  d_step { published[l] = published[l] | mask(place); place = 0; pushed = pushed | mask(l) };
#ifndef SETS_NONE_EARLY
  if :: marks = marks | mask(l) :: true fi
#endif
}

/* A fetch_or for each word. */
inline announce() {
#ifdef BROKEN_ANNOUNCE_IF_CLEAR
  pushed = pushed & ~was_marked;
  was_marked = 0;
#endif
#ifdef BROKEN_MARK_FIRST
  pushed = 0;
#endif
  if :: two_words -> marks = marks | (pushed & 1) :: else fi;
  atomic { marks = marks | pushed; pushed = 0 }
}

proctype submitter(byte turns; byte each; byte first; byte second) {
  byte place; byte pushed; byte count; byte was_marked;
  byte seen_marks; byte queue; bool is_short;
  byte seen; byte most; byte requests; byte which; byte was;
  do
  :: turns > 0 ->
     turns--;
     count = each;
     do
     :: count > 0 -> push(first); first = second; count--
     :: else -> break
     od;
#ifdef CLOSE
     if :: pushed = 0; break :: true fi;
#endif
#ifdef BROKEN_WAKE_FIRST
     wake(each);
     announce()
#else
     announce();
     wake(each)
#endif
  :: else -> break
  od;
  atomic { first = 0; second = 0; turns = 0; submitters-- }
}

/* Scheduler::close(), once the submitters have left. */
proctype closer() {
  submitters == 0;
  marks = marks | 1;                       /* announce_all() */
  marks = marks | 2;
  closed = true;
  d_step { if :: bell[0] == 1 -> bell[0] = 2 :: else fi };
  d_step { if :: bell[1] == 1 -> bell[1] = 2 :: else fi }
}

proctype monitor() {
  timeout ->
  assert(!(takeable(0) || takeable(1)) || !(asleep(0) || asleep(1)));
  assert(!takeable(0) || (marks & 1));
  assert(!takeable(1) || (marks & 2));
#ifdef CLOSE
  assert(!asleep(0) && !asleep(1) && size(0) == 0 && size(1) == 0)
#endif
}

init {
  byte other;                  /* the second request's queue */
  atomic {
#ifdef TWO_SUBMITTERS
    marks = 1;
    submitters = 2;
    run worker(0, true);
    run worker(1, false);
    run submitter(1, 1, 0, 0);
    run submitter(1, 1, 0, 0);
#else
#ifdef APART
    marks = 1;
    submitters = 2;
    run worker(0, false);
    run worker(1, false);
    run submitter(1, 1, 0, 0);
    run submitter(1, 1, 1, 1);
#else
    timeouts_left = 1;
#ifdef CLOSE
    marks = 3;
    if :: other = 0 :: other = 1; two_words = true fi;
    run worker(0, false);
    run closer();
#else
    if :: marks = 3 :: marks = 0 fi;
    if :: other = 0 :: other = 1 :: other = 1; two_words = true fi;
    run worker(0, true);
#endif
    run worker(1, false);
    if
    :: run submitter(2, 1, 0, other)
    :: run submitter(1, 2, 0, other)
    fi;
    other = 0;
#endif
#endif
    run monitor()
  }
}
