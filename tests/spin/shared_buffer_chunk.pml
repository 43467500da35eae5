/* expect: pass; with -DBROKEN: fail; with -DBROKEN_SETTLE: fail
 *
 * How the flusher of lumen::SharedBuffer takes back the chunk of a writer in chunked mode: the mark,
 * the look at what is open, and who accounts for the chunk (src/memory/shared_buffer_flush.cc,
 * settle_chunk(); reserve_as() and leave_chunk() on the writer's side). A chunk of 3 units, records
 * of 1; the writer may go idle anywhere. The asymmetric fence makes "store, then load" hold on both
 * sides, so plain steps in that order are the model, and BROKEN is what it would be without.
 * Shown: nothing is written into a chunk after it was handed over, every committed record is in what
 * was handed over, and exactly one side accounts for the chunk.
 * BROKEN         the writer looks for the mark before it says that a record is open
 * BROKEN_SETTLE  the writer accounts for its chunk without asking whether the flusher has
 */
#define UNITS 3

mtype = { kNone, kOwned, kRevoked, kSettled };
mtype chunk = kOwned;
byte reserved = 0, committed = 0;  /* where the latest reservation and the committed part end */
bool handed_over = false;
byte length = 0;                   /* of what was handed over */
byte accounted = 0;

active proctype writer() {
  byte position = 0;
  do
  :: position < UNITS ->
#ifdef BROKEN
     if
     :: chunk == kOwned -> reserved = position + 1
     :: else -> break
     fi;
#else
     reserved = position + 1;
     if
     :: chunk == kOwned
     :: else -> break
     fi;
#endif
     assert(!handed_over);  /* the record is written here */
     committed = position + 1;
     position++
  :: true -> goto idle
  :: else -> break
  od;
  /* leave_chunk() */
#ifdef BROKEN_SETTLE
  chunk = kNone;
  accounted++;
  length = position;
#else
  atomic {
    if
    :: chunk == kSettled
    :: else -> accounted++; length = position
    fi;
    chunk = kNone
  }
#endif
idle:
  skip
}

active proctype flusher() {
  byte open_end, end;
  atomic {
    if
    :: chunk == kOwned -> chunk = kRevoked
    :: else
    fi
  }
  do
  :: accounted > 0 -> break  /* the writer's count has it */
  :: chunk == kRevoked ->
     open_end = reserved;
     end = committed;
     if
     :: open_end == end ->
        atomic {
          if
          :: chunk == kRevoked -> chunk = kSettled; accounted++; length = end
          :: else
          fi
        }
     :: else
     fi
  od;
  handed_over = true;
  assert(accounted == 1);
  assert(length == committed)
}

never {  /* at no time two accounts */
  do
  :: assert(accounted <= 1)
  od
}
