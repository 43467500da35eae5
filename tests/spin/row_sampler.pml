/* expect: pass; with -DBROKEN_NO_GRACE: fail; with -DBROKEN_NO_SLOT: fail; with -DBROKEN_READ_EARLY: fail; with -DBROKEN_LATE_POINTER: fail
 *
 * lumen::service::RowSampler (src/service/row_sampler.cc: begin(), end(), drop(), before(); src/service/reservoir.cc:
 * write()). Two I/O threads pass one request a turn, both rows for the one slot, while the control plane takes two
 * samples after each other. Catalog::wait_for_turns() is one step here: it waits until each thread has ended a turn that
 * it had begun before (catalog.pml has its statements).
 * Shown: no thread writes into a reservoir that is freed, two never write a slot at once, and a row that is read is
 * whole.
 * BROKEN_NO_GRACE        the end of a sample waits for no turn
 * BROKEN_NO_SLOT         a thread writes without having taken the slot
 * BROKEN_READ_EARLY      rows are read before the end
 * BROKEN_LATE_POINTER    the threads' turns are waited for before the pointer is cleared
 */
#define THREADS 2
#define TURNS 2
#define NONE 0

byte current = NONE;        /* the reservoir: 1, then 2 */
bool alive[3];
bool taken[3];              /* its slot */
byte writers[3];
byte first_half[3];         /* of the row in the slot: the number of its writer */
byte second_half[3];
byte turns[THREADS];        /* that have ended */
byte ended = 0;

proctype io_thread(byte me) {
  byte seen;
  byte left = TURNS;
  do
  :: left == 0 -> break
  :: left > 0 ->
     left--;
     seen = current;                                          /* before() */
     if
     :: seen != NONE ->
        assert(alive[seen]);
#ifdef BROKEN_NO_SLOT
        taken[seen] = true;
#else
        bool had;
        atomic { had = taken[seen]; taken[seen] = true }      /* exchange */
        if
        :: had
        :: !had ->
#endif
           assert(alive[seen]);
           writers[seen]++;
           assert(writers[seen] == 1);
           first_half[seen] = me + 1;
           assert(alive[seen]);
           second_half[seen] = me + 1;
           writers[seen]--;
           taken[seen] = false
#ifndef BROKEN_NO_SLOT
        fi
#endif
     :: else
     fi;
     turns[me]++                                              /* Reader::end_turn() */
  od;
  turns[me] = 100;                                            /* Reader::close() */
  ended++
}

inline wait_for_turns() {
  byte before0 = turns[0];
  byte before1 = turns[1];
  (turns[0] > before0 || turns[0] == 100);
  (turns[1] > before1 || turns[1] == 100)
}

inline read_row(sample) {
  assert(first_half[sample] == second_half[sample])
}

proctype control() {
  byte sample = 1;
  do
  :: sample == 3 -> break
  :: sample < 3 ->
     alive[sample] = true;                                    /* begin() */
     current = sample;
#ifdef BROKEN_READ_EARLY
     read_row(sample);
#endif
#ifdef BROKEN_LATE_POINTER
     wait_for_turns();
     current = NONE;
#else
     current = NONE;                                          /* end() */
#ifndef BROKEN_NO_GRACE
     wait_for_turns();
#endif
#endif
     read_row(sample);                                        /* row() */
     alive[sample] = false;                                   /* drop() */
     sample++
  od
}

proctype monitor() {
  timeout -> assert(ended == THREADS)
}

init { atomic { run io_thread(0); run io_thread(1); run control(); run monitor() } }
