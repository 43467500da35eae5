/* expect: pass; with -DFALLBACK: pass; with -DBROKEN_FENCE: fail; with -DBROKEN_FALLBACK: fail; with -DBROKEN_LOOK: fail; with -DBROKEN_ORDER: fail; with -DBROKEN_CLEAR: fail; with -DBROKEN_EARLY: fail; with -DBROKEN_RECORD: fail; with -DBROKEN_FIRST: fail; with -DBROKEN_TAKEN: fail
 *
 * Hazard pointers of lumen::cache (include/lumen/cache/detail/hazard.h; nodes.h: retire(), free_unheld(); View and
 * look_at() in table_reads.h). One place of a table holds a node; the writer, who has the lock, replaces it
 * twice and looks for nodes that it may free whenever it likes. One reader reads it twice, another once. There is a
 * record that no thread has, of one that has ended: one of them takes it, the other adds one, or gets that of
 * the first when that has ended. A node that was freed is used again.
 * Each thread has a store buffer (as an x86-64 CPU has): its stores are seen by others some time later, in order,
 * its loads at once. A membarrier empties the buffer of each thread, one after the other; a compare-and-swap or an
 * exchange its own thread's. With -DFALLBACK there is no membarrier: the reader's store and the writer's look
 * each have a fence before what follows.
 * Shown: no node is freed while a reader uses it.
 * BROKEN_FENCE     the writer asks for no membarrier
 * BROKEN_FALLBACK  nor has the reader a fence
 * BROKEN_LOOK      the reader does not look at the version again once it has stored the address
 * BROKEN_ORDER     it looks first
 * BROKEN_CLEAR     it clears the address before it has read the node
 * BROKEN_EARLY     the writer looks at the hazards before the node is out of the table
 * BROKEN_RECORD    a record gets into the list after the first read with it
 * BROKEN_FIRST     the writer takes the head of the list before the membarrier
 * BROKEN_TAKEN     a thread looks whether a record is free and then takes it
 * Left out: nested reads; that the list of nodes that wait is bounded; memory that is weaker than x86-64's.
 */
#define READERS 2
#define REPLACES 2
#define NODES 3
#define WRITER READERS  /* its store buffer */

/* Where a buffered store goes: VERSION, ENTRY, or a slot or the mark of a record. */
#define VERSION 0
#define ENTRY 1
#define SLOT(record) (2 + (record))
#define TAKEN(record) (2 + READERS + (record))
byte memory[6];
chan buffer[3] = [4] of { byte, byte };
#define version memory[VERSION]
#define entry memory[ENTRY]

byte first = 0;        /* of the list of records: a record + 1 */
byte next[READERS];
byte records = 0;

bool live[NODES + 1];  /* in the table, or waiting */
bool waiting[NODES + 1];
byte used_by[READERS]; /* the node that a reader reads */

inline store(thread, place, value) {
  buffer[thread]!place,value
}
inline drain(thread) {
  atomic {
    do
    :: nempty(buffer[thread]) -> buffer[thread]?where,what; memory[where] = what
    :: empty(buffer[thread]) -> break
    od;
    where = 0;
    what = 0
  }
}
/* Stores come out of the buffers at any time. */
active [3] proctype cpu() {
  byte where, what;
  do
  :: atomic { buffer[_pid]?where,what -> memory[where] = what; where = 0; what = 0 }
  od
}

/* ---- nodes.h and hazard.h, the writer's side */
inline free_unheld() {
#ifdef BROKEN_FIRST
  record = first;
#endif
#ifndef BROKEN_FENCE
  drain(WRITER);
#ifndef FALLBACK
#ifndef BROKEN_FALLBACK
  drain(0);
  drain(1);
#endif
#endif
#endif
#ifndef BROKEN_FIRST
  record = first;
#endif
  atomic { held[1] = false; held[2] = false; held[3] = false }
  do
  :: record == 0 -> break
  :: else -> atomic { held[memory[SLOT(record - 1)]] = true; record = next[record - 1] }
  od;
  node = 1;
  do
  :: node > NODES -> break
  :: else ->
     atomic {
       if
       :: waiting[node] && !held[node] ->
          assert(used_by[0] != node && used_by[1] != node);
          waiting[node] = false;
          live[node] = false
       :: else
       fi;
       node++
     }
  od;
  atomic { node = 0; held[0] = false; held[1] = false; held[2] = false; held[3] = false }
}

proctype writer() {
  byte done, node, fresh, old, seen, record, where, what;
  bool held[NODES + 1];
  old = 1;
  seen = 2;
  do
  :: done == REPLACES -> break
  :: done < REPLACES ->
     d_step {  /* make() */
       fresh = 1;
       do
       :: fresh <= NODES && live[fresh] -> fresh++
       :: else -> break
       od
     }
     if
     :: fresh > NODES -> break  /* all wait */
     :: else
     fi;
     live[fresh] = true;
#ifdef BROKEN_EARLY
     waiting[old] = true;
     free_unheld();
#endif
     store(WRITER, VERSION, seen + 1);
     store(WRITER, ENTRY, fresh);
     store(WRITER, VERSION, seen + 2);
#ifndef BROKEN_EARLY
     waiting[old] = true;
     if
     :: free_unheld()
     :: true
     fi;
#endif
     atomic { seen = seen + 2; old = fresh; fresh = 0; done++ }
  od
}

/* ---- the reader's side */
inline add() {
  link = first;
  do
  :: atomic { first == link -> next[mine] = link; first = mine + 1; break }
  :: first != link -> link = first
  od;
  link = 0
}
inline take() {
  is_mine = false;
  link = first;
  do
  :: link == 0 -> break
  :: else ->
#ifdef BROKEN_TAKEN
     is_mine = !memory[TAKEN(link - 1)];
     if
     :: is_mine -> memory[TAKEN(link - 1)] = true
     :: else
     fi;
#else
     atomic { is_mine = !memory[TAKEN(link - 1)]; memory[TAKEN(link - 1)] = true };
#endif
     if
     :: is_mine -> mine = link - 1; break
     :: else -> link = next[link - 1]
     fi
  od;
  link = 0;
  if
  :: is_mine -> is_new = false
  :: else ->
     atomic { mine = records; records++; memory[TAKEN(mine)] = true; is_new = true }
#ifndef BROKEN_RECORD
     add()
#endif
  fi
}
inline protect() {
  store(me, SLOT(mine), node);
#ifdef FALLBACK
  drain(me)
#endif
}

proctype reader(byte me; byte most) {
  byte mine, link, node, seen, reads, where, what;
  bool is_mine, is_new;
  take();
  do
  :: reads == most -> break
  :: reads < most ->
     seen = version;
     if
     :: seen % 2 == 1
     :: else ->
        node = entry;
#ifdef BROKEN_ORDER
        if
        :: atomic { version == seen -> used_by[me] = node }; protect()
        :: version != seen
        fi;
#else
        protect();
        if
#ifdef BROKEN_LOOK
        :: used_by[me] = node
#else
        :: atomic { version == seen -> used_by[me] = node }
        :: version != seen
#endif
        fi;
#endif
#ifndef BROKEN_CLEAR
        used_by[me] = 0;  /* read */
#endif
        node = 0;
        store(me, SLOT(mine), 0);
#ifdef BROKEN_CLEAR
        used_by[me] = 0;
#endif
#ifdef BROKEN_RECORD
        if
        :: is_new -> add(); is_new = false
        :: else
        fi;
#endif
     fi;
     atomic { seen = 0; reads++ }
  od;
  store(me, TAKEN(mine), 0)
}

init {
  atomic {
    version = 2; entry = 1; live[1] = true;
    first = 1; records = 1;
    run writer(); run reader(0, 2); run reader(1, 1)
  }
}
