/* expect: pass; with -DBROKEN_ORDER: fail; with -DBROKEN_LOOK: fail; with -DBROKEN_CLAIM: fail
 *
 * Batches of lumen::MpmcQueue (include/lumen/queue/mpmc_queue.h): a claim of a run of positions by one
 * compare-and-swap, after a look at the turn of each; values and turns written from the last slot of
 * the run to its first. A lap is 4 slots; one producer pushes batches of 2, one single items, two
 * consumers take up to 2.
 * Shown: no slot is written while it holds a value nor read while it holds none; items come out once,
 * each producer's in its order; whoever finds the first item of a batch takes the batch whole, and who
 * finds the first slot of a run that was taken finds all of them free.
 * BROKEN_ORDER  turns are written from the first slot of the run on
 * BROKEN_LOOK   only the turn of the first slot is looked at
 * BROKEN_CLAIM  the index is stored, not compared and swapped
 * Waiting, closing and wake-ups are mpmc_doorbell.pml; the code looks at four turns at once, which changes nothing:
 * a turn that is as wanted stays so until its position is claimed, and then the compare-and-swap fails.
 */
#define SLOTS 4
#define BATCH 2
#define ITEMS 6   /* two batches and two single ones */

byte turn[SLOTS];
byte value[SLOTS];        /* 0: none; else 1 + what */
byte tail = 0;
byte head = 0;
byte pushed_run[ITEMS];   /* by first position: how many one call pushed there */
byte popped_run[ITEMS];   /* and how many one call took */
byte popped[ITEMS];       /* by position */

/* claim(): up to `most` positions of `index` whose slots have the turn position + offset */
inline claim(index, offset, most) {
  count = 0;
  position = index;
  do
  :: count = 0;
     seen = turn[position % SLOTS];
     if
     :: seen == position + offset ->
        count = 1;
        do
#ifdef BROKEN_LOOK
        :: count < most -> count++
#else
        :: count < most && turn[(position + count) % SLOTS] == position + count + offset -> count++
        :: count < most && turn[(position + count) % SLOTS] != position + count + offset -> break
#endif
        :: count == most -> break
        od;
#ifdef BROKEN_CLAIM
        index = position + count; break
#else
        if
        :: atomic { index == position -> index = position + count }; break
        :: atomic { index != position -> position = index }
        fi
#endif
     :: seen < position + offset -> count = 0; break       /* full, or empty */
     :: seen > position + offset -> position = index
     fi
  od
}

proctype producer(byte first; byte batch; byte items) {
  byte position, seen, count, i;
  byte next = 0;
  do
  :: next < items ->
     claim(tail, 0, batch - next % batch);
     if
     :: count > 0 ->
        d_step {
          pushed_run[position] = count;
          /* the run that was taken there one lap ago was freed as a whole */
          assert(count == batch - next % batch || position < SLOTS ||
                 popped_run[position - SLOTS] <= count)
        };
        i = count;
        do
        :: i > 0 ->
           i--;
#ifdef BROKEN_ORDER
#define AT (count - 1 - i)
#else
#define AT i
#endif
           d_step {
             assert(value[(position + AT) % SLOTS] == 0);
             value[(position + AT) % SLOTS] = 1 + first + next + AT
           };
           turn[(position + AT) % SLOTS] = position + AT + 1
        :: i == 0 -> break
        od;
        next = next + count
     :: else
     fi
  :: else -> break
  od
}

proctype consumer() {
  byte position, seen, count, i;
  do
  :: head < ITEMS ->
     claim(head, 1, BATCH);
     if
     :: count > 0 ->
        d_step {
          assert(pushed_run[position] <= count);           /* never a part of a batch */
          popped_run[position] = count
        };
        i = count;
        do
        :: i > 0 ->
           i--;
           d_step {
             assert(value[(position + AT) % SLOTS] != 0);
             assert(popped[position + AT] == 0);
             popped[position + AT] = value[(position + AT) % SLOTS];
             value[(position + AT) % SLOTS] = 0
           };
           turn[(position + AT) % SLOTS] = position + AT + SLOTS
        :: i == 0 -> break
        od
     :: else
     fi
  :: else -> break
  od
}

proctype monitor() {
  byte p, last0, last1;
  timeout ->
  d_step {
    assert(tail == ITEMS && head == ITEMS);
    do
    :: p < ITEMS ->
       if
       :: popped[p] > 4 -> assert(popped[p] == (last1 == 0 -> 5 : last1 + 1)); last1 = popped[p]
       :: else -> assert(popped[p] == last0 + 1); last0 = popped[p]
       fi;
       p++
    :: else -> break
    od;
    assert(last0 == 4 && last1 == 6)
  }
}

init {
  d_step { turn[0] = 0; turn[1] = 1; turn[2] = 2; turn[3] = 3 };
  atomic {
    run producer(0, BATCH, 4); run producer(4, 1, 2);
    run consumer(); run consumer();
    run monitor()
  }
}
