/* expect: pass; with -DBROKEN_ODD: fail; with -DBROKEN_EARLY: fail; with -DBROKEN_AGAIN: fail; with -DBROKEN_LOOK: fail; with -DBROKEN_TURN: fail; with -DBROKEN_NUMBER: fail; with -DBROKEN_WINDOW: fail
 *
 * One window of the flight recorder (include/lumen/telemetry/flight_region.h; begin() and keep() in
 * src/telemetry/flight_recorder.cc) with two entries, and a reader (flight_reader.cc). An entry has a mark and two
 * words. The writer begins a window, writes an entry, writes another, writes over the first (the least gives
 * way), and does so again for the next window; a word tells its window and its request. It may stop for good
 * before any statement: the thread is preempted, or its process killed.
 * The code stores all but the odd mark by releases and the reader loads by acquires, so a reader sees states of
 * the writer in their order, perhaps late; whole steps show that.
 * Shown: a reader that takes an entry has both words of one request, of the window whose number it has read.
 * BROKEN_ODD     the mark stays even while the entry is written
 * BROKEN_EARLY   the even mark is stored before the last word
 * BROKEN_AGAIN   the reader does not look at the mark again
 * BROKEN_LOOK    it does not look whether the mark is odd
 * BROKEN_TURN    the number of the next window is stored before the window is emptied
 * BROKEN_NUMBER  the number is stored after the window's first entry
 * BROKEN_WINDOW  the reader does not look at the number again
 */
#define WINDOWS 2
#define REQUESTS 3   /* of a window */
#define ENTRIES 2

byte number = 0;     /* windows from 1 on: 0 is none */
byte used = 0;
byte mark[ENTRIES];
byte first[ENTRIES];
byte second[ENTRIES];

/* A request of window w: w * 8 + r. */
#define window_of(word) ((word) / 8)

inline write_entry(place, word) {
#ifndef BROKEN_ODD
  mark[place] = mark[place] + 1;
#endif
  first[place] = word;
#ifdef BROKEN_EARLY
  mark[place] = mark[place] + 1;
#endif
  second[place] = word;
#ifdef BROKEN_ODD
  mark[place] = mark[place] + 2;
#else
#ifndef BROKEN_EARLY
  mark[place] = mark[place] + 1;
#endif
#endif
}

proctype writer() {
  byte w = 1;
  byte r;
  byte place;
  do
  :: w <= WINDOWS ->
#ifdef BROKEN_TURN
     number = w;
     used = 0;
#else
     used = 0;
#ifndef BROKEN_NUMBER
     number = w;
#endif
#endif
     r = 0;
     do
     :: r < REQUESTS ->
        place = r % ENTRIES;
        write_entry(place, w * 8 + r);
#ifdef BROKEN_NUMBER
        number = w;
#endif
        if
        :: r < ENTRIES -> used = r + 1
        :: else
        fi;
        r++
     :: break                           /* it stops */
     :: r == REQUESTS -> break
     od;
     if
     :: r == REQUESTS -> w++
     :: else -> break
     fi
  :: w > WINDOWS -> break
  od
}

proctype reader() {
  byte wanted;
  byte count;
  byte i = 0;
  byte before;
  byte a;
  byte b;
  byte taken[ENTRIES];                  /* words that were taken, by their places */
  wanted = number;
  count = used;
  do
  :: i < count ->
     before = mark[i];
     if
     :: before == 0
#ifndef BROKEN_LOOK
     :: before % 2 == 1
#endif
#ifdef BROKEN_LOOK
     :: before != 0 ->
#else
     :: before != 0 && before % 2 == 0 ->
#endif
        a = first[i];
        b = second[i];
#ifndef BROKEN_AGAIN
        if
        :: mark[i] == before ->
#endif
           assert(a == b);
           taken[i] = a
#ifndef BROKEN_AGAIN
        :: else
        fi
#endif
     fi;
     i++
  :: i >= count -> break
  od;
#ifndef BROKEN_WINDOW
  if
  :: number == wanted ->
#endif
     i = 0;
     do
     :: i < ENTRIES ->
        if
        :: taken[i] == 0
        :: else -> assert(window_of(taken[i]) == wanted)
        fi;
        i++
     :: else -> break
     od
#ifndef BROKEN_WINDOW
  :: else
  fi
#endif
}

init {
  atomic { run writer(); run reader() }
}
