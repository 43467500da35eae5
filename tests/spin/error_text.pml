/* expect: pass; with -DBROKEN_STORES_CLAIM: fail; with -DBROKEN_READS_AFTER_RELEASE: fail; with -DBROKEN_COPY_WITHOUT_HOLD: fail
 *
 * Long messages of errors (src/base/error_text.cc: claim(); include/lumen/base/error_text.h: hold(), release()). Two slots.
 * Three threads make an error each, twice: claim, write, give a copy to another thread, read the own message, let go.
 * Two threads take such copies, read and let go.
 * Shown: each reads the message of its own error; a slot is never written while it is held; at the end all slots are free.
 *
 * BROKEN_STORES_CLAIM         claim() looks whether a slot is free and then stores 1
 * BROKEN_READS_AFTER_RELEASE  a copy is read after it was let go
 * BROKEN_COPY_WITHOUT_HOLD    a copy does not count
 */
#define SLOTS 2
#define NONE 255

byte holders[SLOTS];
byte text[SLOTS];                       /* the number of the error whose message lies there */
chan copies = [3] of { byte, byte };    /* slot, number: the hand-over of a Status to another thread */
byte ended = 0;

inline claim(s) {
  s = NONE; look = 0;
  do
  :: look < SLOTS && s == NONE ->
#ifdef BROKEN_STORES_CLAIM
     if
     :: holders[look] == 0 -> holders[look] = 1; s = look
     :: else
     fi;
#else
     if
     :: holders[look] == 0 ->
        atomic {                        /* compare_exchange_strong(0, 1) */
          if
          :: holders[look] == 0 -> holders[look] = 1; s = look
          :: else
          fi
        }
     :: else
     fi;
#endif
     look++
  :: else -> break
  od;
  look = 0
}

inline release(s) {
  atomic { assert(holders[s] > 0); holders[s]-- }
}

proctype maker(byte first) {
  byte s, look, turn = 0;
  do
  :: turn < 2 ->
     claim(s);
     if
     :: s != NONE ->
        text[s] = NONE;                 /* written in part */
        text[s] = first + turn;
        if
        :: nfull(copies) ->
#ifndef BROKEN_COPY_WITHOUT_HOLD
           holders[s]++;                /* hold(): fetch_add, one step */
#endif
           copies ! s, first + turn
        :: skip                         /* nobody gets a copy */
        fi;
        assert(text[s] == first + turn);
        release(s)
     :: else                            /* no slot: the beginning is kept in the Status */
     fi;
     turn++
  :: else -> break
  od;
  ended++
}

proctype reader() {
  byte s, number;
  do
  :: copies ? s, number ->
#ifdef BROKEN_READS_AFTER_RELEASE
     release(s);
     assert(text[s] == number)
#else
     assert(text[s] == number);
     release(s)
#endif
  :: ended == 3 && empty(copies) -> break
  od
}

init {
  atomic { run maker(10); run maker(20); run maker(30); run reader(); run reader() };
  (_nr_pr == 1);
  assert(holders[0] == 0 && holders[1] == 0)
}
