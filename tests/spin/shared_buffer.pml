/* expect: pass; with -DBROKEN: fail; with -DBROKEN_REUSE: fail; with -DBROKEN_AGAIN: fail; with -DBROKEN_SEAL: fail
 *
 * Reserve, commit, seal, swap and flush of lumen::SharedBuffer in dense mode, flushed by the writers
 * (include/lumen/memory/shared_buffer.h). Two writers put five records of 1 or 2 units into two
 * buffers of 2 units, so that both buffers live twice at least; each writer seals and flushes at its
 * end. Every shared operation of the code is seq_cst, or its order follows from the release and
 * acquire that the header argues, so each is one step here.
 * Not in it: the turns that writers take (line_turns.h). They only say when a writer makes its next
 * fetch_add, between two records and with none open, so they add no step; the model lets every writer
 * wait anywhere for any time.
 * Shown: what is handed over is what was committed, every record once, in order per writer, whole; no
 * buffer is reused while it is being handed over; both writers come to their end, and nothing is left.
 * BROKEN        handed over when sealed, without the writers' counts
 * BROKEN_REUSE  the slot is freed before the callback has read it
 * BROKEN_AGAIN  who finds the flush token taken goes away without a word
 * BROKEN_SEAL   the next buffer is opened without a look whether its slot is free
 */
#define CAP 2
#define N 2
#define W 2
/* writer 0: records of 1, 2 and 1 units; writer 1: of 1 and 2 */
#define RECORDS(w) (3 - (w))
#define SIZE(w, r) ((r) == 1 -> 2 : 1)
#define ID(w, r) (1 + (w) * 4 + (r))

byte word_sequence = 0, word_offset = 0;  /* one word */
byte slot_sequence[N], slot_used[N];      /* one word a slot; used 0: free or open, else used + 1 */
byte committed[4];                        /* [writer * N + slot], only grows */
byte expected[N];                         /* the token's */
byte memory[4];                           /* [slot * CAP + unit] */
bool token = false, again = false;
byte next_flush = 0;
byte handed_over[W];                      /* records of each writer */
byte units_of_record[W];
byte done = 0;

inline make_room(sequence) {  /* sets room */
  next = sequence + 1;
  if
  :: word_sequence != sequence -> room = true
  :: else ->
     if
     :: atomic { slot_sequence[sequence % N] == sequence && slot_used[sequence % N] == 0 ->
                 room = false }  /* not sealed yet */
     :: else ->
        if
#ifdef BROKEN_SEAL
        :: true ->
#else
        :: atomic { !(slot_sequence[next % N] == next && slot_used[next % N] == 0) -> room = false }
        :: else ->
#endif
           atomic {
             if
             :: word_sequence == sequence -> word_sequence = next; word_offset = 0
             :: else
             fi
           }
           room = true
        fi
     fi
  fi
}

inline read_unit(index) {  /* the callback */
  d_step {
    id = memory[index];
    assert(id != 0);
    id = id - 1;
    assert(id % 4 == handed_over[id / 4]);  /* in order, once */
    units_of_record[id / 4]++;
    if
    :: units_of_record[id / 4] == SIZE(id / 4, id % 4) ->
       units_of_record[id / 4] = 0;
       handed_over[id / 4]++
    :: else
    fi;
    memory[index] = 0;
    id = 0
  }
}

inline recycle() {
  d_step { slot_sequence[slot] = slot_sequence[slot] + N; slot_used[slot] = 0 }
}

inline flush_next() {  /* sets more */
  slot = next_flush % N;
  if
  :: atomic { slot_sequence[slot] == next_flush && slot_used[slot] != 0 ->
              used = slot_used[slot] - 1 }
     sum = committed[0 * N + slot];
     sum = sum + committed[1 * N + slot];
#ifdef BROKEN
     sum = expected[slot] + used;
#endif
     if
     :: sum != expected[slot] + used -> more = false
     :: else ->
        expected[slot] = sum;
#ifdef BROKEN_REUSE
        recycle();
#endif
        unit = 0;
        do
        :: unit < used -> read_unit(slot * CAP + unit); unit++
        :: else -> break
        od;
#ifndef BROKEN_REUSE
        recycle();
#endif
        next_flush++;
        more = true
     fi
  :: else -> more = false
  fi
}

inline flush_ready() {
  do
  :: atomic { got = !token; token = true }
     if
     :: got
     :: else ->
#ifdef BROKEN_AGAIN
        break
#else
        again = true;
        atomic { got = !token; token = true }
        if
        :: got
        :: else -> break
        fi
#endif
     fi;
     again = false;
     do
     :: flush_next();
        if
        :: more
        :: else -> break
        fi
     od;
     token = false;
     if
     :: again
     :: else -> break
     fi
  od
}

inline seal_at(sequence, fill) {
  atomic {
    assert(slot_sequence[sequence % N] == sequence && slot_used[sequence % N] == 0);
    slot_used[sequence % N] = fill + 1
  }
  make_room(sequence);
  flush_ready()
}

proctype writer(byte me) {
  byte record = 0, size, sequence, offset, next, slot, used, sum, unit, id;
  bool room, got, more;
  do
  :: record < RECORDS(me) ->
     size = SIZE(me, record);
     do
     :: atomic { sequence = word_sequence; offset = word_offset; word_offset = word_offset + size }
        if
        :: offset + size <= CAP -> break
        :: else ->
           if
           :: offset <= CAP -> seal_at(sequence, offset)  /* we are its closer */
           :: else
           fi;
           do
           :: make_room(sequence);
              if
              :: room -> break
              :: else -> flush_ready();
                 /* The code polls. Here: sleeps until a poll would do something, so that a state in
                    which no poll ever would is one in which nothing can move. */
                 (word_sequence != sequence ||
                  (slot_sequence[next % N] == next && slot_used[next % N] == 0) ||
                  (!token && slot_used[next_flush % N] != 0 &&
                   committed[next_flush % N] + committed[N + next_flush % N] ==
                   expected[next_flush % N] + slot_used[next_flush % N] - 1))
              fi
           od
        fi
     od;
     memory[(sequence % N) * CAP + offset] = ID(me, record);
     if
     :: size == 2 -> memory[(sequence % N) * CAP + offset + 1] = ID(me, record)
     :: else
     fi;
     committed[me * N + sequence % N] = committed[me * N + sequence % N] + size;
     record++
  :: else -> break
  od;
  /* seal(), then flush_ready(): what a writer does that leaves */
  atomic {
    sequence = word_sequence; offset = word_offset;
    if
    :: offset > 0 && offset <= CAP -> word_offset = CAP + 1; got = true
    :: else -> got = false
    fi
  }
  if
  :: got -> seal_at(sequence, offset)
  :: else -> flush_ready()
  fi;
  done++
}

init {
  atomic {
    slot_sequence[0] = 0; slot_sequence[1] = 1;
    run writer(0);
    run writer(1)
  }
  timeout;  /* nothing can move any more */
  /* All is committed and sealed, and whoever sealed last has asked for a flush. */
  assert(done == W);
  assert(handed_over[0] == RECORDS(0) && handed_over[1] == RECORDS(1))
}
