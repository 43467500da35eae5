/* expect: pass; with -DBROKEN_NO_SECOND_LOOK: fail; with -DBROKEN_RING_FIRST: fail; with -DBROKEN_ONE_NUMBER: fail; with -DBROKEN_STUCK_EARLY: fail; with -DBROKEN_STUCK_SILENT: fail; with -DBROKEN_DRAIN_LATE: fail; with -DBROKEN_DEATH_FIRST: fail; with -DBROKEN_PUBLISHER_LOOKS_ONCE: fail; with -DBROKEN_GIVES_BACK_LATE: fail
 *
 * The waits of lumen::bus (src/bus/publisher.cc: wait_for_room(), sleep(), flush(); src/bus/subscriber.cc: wait(),
 * sleep(), is_stuck(); include/lumen/bus/subscriber.h: release_to(); include/lumen/bus/peer.h: Bell, SleepWord).
 * A publisher sends FRAMES frames over a ring of CAPACITY, or is killed before any of its statements. A
 * subscriber takes them one by one and gives them back at once or keeps them; it lets go when it is told that
 * it holds the ring (kHeld). Either may be ended by its deadline in a sleep, and goes on. Each of the other
 * side's words is one statement, as it is one seq_cst operation.
 * Shown: once nothing can move, every frame that was published has been taken and the subscriber knows the end;
 * kHeld is said only where the publisher has no room; nobody sleeps while what it waits for is there.
 * BROKEN_NO_SECOND_LOOK         the subscriber sleeps without a look after its announcement
 * BROKEN_PUBLISHER_LOOKS_ONCE   the publisher does
 * BROKEN_RING_FIRST             the publisher looks at the sleeper's word before it publishes
 * BROKEN_GIVES_BACK_LATE        the subscriber looks at the sleeper's word before it gives back
 * BROKEN_ONE_NUMBER             every sleep has the same odd number, so that the second is not rung for
 * BROKEN_STUCK_EARLY            the publisher says that it is stuck before it has looked
 * BROKEN_STUCK_SILENT           it does not ring when it is stuck
 * BROKEN_DRAIN_LATE             the subscriber takes bells away after its second look
 * BROKEN_DEATH_FIRST            it believes a death without another look at the ring
 */
#define FRAMES 4
#define CAPACITY 2

byte tail = 0;             /* publisher's file */
byte pub_asleep = 0;
byte stuck_for = 0;
byte head = 0;             /* cursor file */
byte sub_asleep = 0;
bool bell_sub = false;     /* a byte waits at the subscriber's end */
bool bell_pub = false;
bool pub_dead = false;     /* the kernel knows */
bool pub_ended = false;    /* it has sent all, and closed: the same to the other side, but for the reason */
bool pub_idle = false;     /* it has nothing more to send, and lives on */
bool sub_ended = false;
byte committed = 0;        /* private to the publisher; here for the assertion of kHeld */
byte taken = 0;            /* private to the subscriber; here for the monitor */
byte timeouts = 1;         /* a deadline may pass so often, on either side */

#define IS_ODD(word) ((word) % 2 == 1)
#define GONE (pub_dead || pub_ended)

inline may_die() { if :: pub_dead = true; goto dead :: skip fi }

active proctype publisher() {
  byte word = 0, rung = 0, seen;
  bool has_rung;
  do
  :: committed < FRAMES ->
     /* wait_for_room() */
     do
     :: may_die();
        seen = head;
        if
        :: committed - seen < CAPACITY -> break
        :: else
        fi;
        may_die();
        if :: has_rung -> bell_pub = false; has_rung = false :: else fi;  /* take_rings_away() */
        may_die();
#ifdef BROKEN_ONE_NUMBER
        word = 1;
#else
        word = (word + 1) | 1;
#endif
        pub_asleep = word;                              /* announce() */
        may_die();
#ifdef BROKEN_STUCK_EARLY
        stuck_for = word;
#endif
#ifndef BROKEN_PUBLISHER_LOOKS_ONCE
        seen = head;
        if
        :: committed - seen < CAPACITY -> word = word + 1; pub_asleep = word; break
        :: else
        fi;
        may_die();
#endif
        stuck_for = word;
        may_die();
#ifndef BROKEN_STUCK_SILENT
        seen = sub_asleep;                              /* ring_all() */
        if :: IS_ODD(seen) && seen != rung -> rung = seen; bell_sub = true :: else fi;
#endif
        seen = 0;
        may_die();
        if                                              /* poll() */
        :: atomic { bell_pub -> has_rung = true }
        :: sub_ended -> goto over
        :: atomic { timeouts > 0 -> timeouts-- }
        fi;
        may_die();
        word = word + 1;
        pub_asleep = word
     od;
     seen = 0;
     committed++;
#ifdef BROKEN_RING_FIRST
     seen = sub_asleep;
     may_die();
     tail = committed;
#else
     may_die();
     tail = committed;                                  /* publish() */
     may_die();
     seen = sub_asleep;                                 /* ring_all() */
#endif
     if :: IS_ODD(seen) && seen != rung -> rung = seen; bell_sub = true :: else fi;
     seen = 0
  :: else -> break
  od;
  if :: goto over :: pub_idle = true fi;
  goto dead;
over:
  pub_ended = true;
dead:
  skip
}

inline give_back() {
#ifdef BROKEN_GIVES_BACK_LATE
  look = pub_asleep;
  head = taken;
#else
  head = taken;
  look = pub_asleep;
#endif
  if :: IS_ODD(look) && look != rung -> rung = look; bell_pub = true :: else fi;
  look = 0
}

/* is_stuck(): two loads */
inline see_stuck() {
  look = pub_asleep;
  stuck = IS_ODD(look) && look != rung && (taken != head || ready);
  stuck = stuck && look == stuck_for;
  look = 0
}

active proctype subscriber() {
  byte word = 0, rung = 0, look;
  bool ready, stuck, gone, has_rung;
  do
  :: /* wait() */
     ready = tail != taken;
     if
     :: ready -> skip
     :: else ->
        gone = GONE;
        if
        :: gone ->
#ifndef BROKEN_DEATH_FIRST
           ready = tail != taken;                       /* state(): what it published last */
#endif
           if :: ready -> skip :: else -> break fi
        :: else ->
           see_stuck();
           if
           :: stuck ->
              ready = tail != taken;
              if
              :: ready -> skip
              :: else ->                                /* kHeld */
                 assert(pub_dead || committed - head >= CAPACITY);
                 give_back()
              fi
           :: else ->
#ifndef BROKEN_DRAIN_LATE
              if :: has_rung -> bell_sub = false; has_rung = false :: else fi;  /* before_sleep() */
#endif
#ifdef BROKEN_ONE_NUMBER
              word = 1;
#else
              word = (word + 1) | 1;
#endif
              sub_asleep = word;                        /* announce() */
#ifndef BROKEN_NO_SECOND_LOOK
              ready = tail != taken;
              if :: !ready -> see_stuck() :: else fi;
#else
              stuck = false;
#endif
#ifdef BROKEN_DRAIN_LATE
              if :: has_rung -> bell_sub = false; has_rung = false :: else fi;
#endif
              if
              :: ready || stuck
              :: else ->
                 if                                     /* poll() */
                 :: atomic { bell_sub -> has_rung = true }
                 :: GONE
                 :: atomic { timeouts > 0 -> timeouts-- }
                 fi
              fi;
              word = word + 1;
              sub_asleep = word;
              stuck = false
           fi
        fi;
        gone = false
     fi;
     if
     :: ready ->
        taken++;
        ready = false;
        if :: give_back() :: skip fi                    /* or keeps it, and what it kept before */
     :: else
     fi
  od;
  sub_ended = true
}

active proctype monitor() {
  timeout ->
  assert(taken == tail);
  assert(pub_idle || (sub_ended && GONE))
}
