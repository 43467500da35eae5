/* expect: pass; with -DBROKEN_FREES_NODE_FIRST: fail; with -DBROKEN_CLOSES_LATE: fail; with -DBROKEN_CLOSES_WITHOUT_EXCHANGE: fail; with -DBROKEN_NO_DOOR: fail; with -DBROKEN_LEAVES_WITHOUT_EXCHANGE: fail
 *
 * Calls of two keys that wait for each other's runs (src/answers/shared_runs.h, src/answers/shared_runs.cc: join(),
 * join_inside(), push(), leave(), end_run(), hand_over(), put_back(); src/answers/response_cache.cc: join()). Three calls,
 * each with a thread: it leads, waits or runs alone; one that waits may leave at any time (a deadline, a cancel); a run
 * ends well (end_run()) or fails (hand_over()).
 * Shown: each call ends once, by its own run, by the leader's answer of its own key, or by leaving; once nothing moves no
 * call waits, all nodes are free and all runs are over.
 *
 * BROKEN_FREES_NODE_FIRST          a node is free before its call was taken out
 * BROKEN_CLOSES_LATE               end_run() takes the list, and closes the run afterwards
 * BROKEN_CLOSES_WITHOUT_EXCHANGE   hand_over() looks whether a call waits, and closes the run afterwards
 * BROKEN_NO_DOOR                   a bucket is searched by two calls at once
 * BROKEN_LEAVES_WITHOUT_EXCHANGE   a call that leaves does not look whether it was taken
 */
#define CALLS 3
#define SHARED_RUNS 2
#define NODES 2
#define NONE 255
#define OPEN 254
#define CLOSED 253

#define RUNS 0
#define WAITS 1
#define LEADS 2
#define ENDED 3

bool door = false;
byte head[SHARED_RUNS];
byte key_of_run[SHARED_RUNS];
byte call_of[NODES];
byte next[NODES];
bool is_free[NODES];
byte state[CALLS];
byte key_of_call[CALLS];
byte run_of[CALLS];         /* of a call that leads */
byte ends[CALLS];

inline end_call(c) { d_step { ends[c]++; assert(ends[c] == 1); state[c] = ENDED } }

inline pop_node() {
  atomic {
    if
    :: is_free[0] -> is_free[0] = false; node = 0
    :: is_free[1] -> is_free[1] = false; node = 1
    :: else -> node = NONE
    fi
  }
}

/* push(): one exchange at a time; `pushed` */
inline push(f, first, last) {
  do
  :: seen = head[f];
     if
     :: seen == CLOSED -> pushed = false; break
     :: else -> next[last] = seen
     fi;
     atomic { if :: head[f] == seen -> head[f] = first; pushed = true :: else -> pushed = false fi };
     if :: pushed -> break :: else fi
  od;
  seen = NONE
}

/* turned(): the list is this thread's alone. `list`: the oldest */
inline turn(newest) {
  d_step {
    walk = newest; list = OPEN;
    do
    :: walk == OPEN -> break
    :: else -> after = next[walk]; next[walk] = list; list = walk; walk = after
    od;
    walk = NONE; after = NONE
  }
}

inline take_call(n) {
#ifdef BROKEN_FREES_NODE_FIRST
  is_free[n] = true;
  atomic { taken = call_of[n]; call_of[n] = NONE }
#else
  atomic { taken = call_of[n]; call_of[n] = NONE };
  is_free[n] = true
#endif
}

inline join_inside() {
  i = 0; free_run = NONE;
  do
  :: i < SHARED_RUNS ->
     if
     :: head[i] == CLOSED -> free_run = i
     :: head[i] != CLOSED && key_of_run[i] != key_of_call[id] -> skip
     :: else ->
        pop_node();
        if
        :: node == NONE -> role = RUNS; break
        :: else ->
           call_of[node] = id;
           state[id] = WAITS;          /* it may be taken from the push on */
           push(i, node, node);
           if
           :: pushed -> role = WAITS; break
           :: else -> state[id] = RUNS; call_of[node] = NONE; is_free[node] = true; free_run = i; i = SHARED_RUNS; break
           fi
        fi
     fi;
     i++
  :: else -> break
  od;
  if
  :: role == WAITS || (role == RUNS && node == NONE && i < SHARED_RUNS)
  :: else ->
     if
     :: free_run == NONE -> role = RUNS
     :: else ->
        key_of_run[free_run] = key_of_call[id];
        head[free_run] = OPEN;
        run_of[id] = free_run;
        role = LEADS
     fi
  fi;
  i = 0; pushed = false
}

inline end_run(f) {
#ifdef BROKEN_CLOSES_LATE
  atomic { list = head[f]; head[f] = OPEN };
  head[f] = CLOSED;
#else
  atomic { list = head[f]; head[f] = CLOSED };
#endif
  turn(list);
  do
  :: list == OPEN -> break
  :: else ->
     rest = next[list];
     take_call(list);
     if
     :: taken != NONE -> assert(key_of_call[taken] == key_of_call[id]); end_call(taken)
     :: else
     fi;
     list = rest
  od;
  rest = NONE; taken = NONE; list = NONE
}

/* The heir's own process goes on as the leader. */
inline hand_over(f) {
  heir = NONE;
  do
  ::
#ifdef BROKEN_CLOSES_WITHOUT_EXCHANGE
     pushed = (head[f] == OPEN);
     if :: pushed -> head[f] = CLOSED; break :: else fi;
#else
     atomic { pushed = (head[f] == OPEN); if :: pushed -> head[f] = CLOSED :: else fi };
     if :: pushed -> break :: else fi;
#endif
     atomic { list = head[f]; head[f] = OPEN };
     turn(list);
     do
     :: list == OPEN -> break
     :: else ->
        rest = next[list];
        take_call(list);
        if
        :: taken != NONE -> heir = taken; break
        :: else -> list = rest
        fi
     od;
     if
     :: heir != NONE ->
        if
        :: rest != OPEN ->           /* put_back() */
           oldest = rest;
           turn(rest);
           push(f, list, oldest);
           assert(pushed)
        :: else
        fi;
        break
     :: else
     fi
  od;
  pushed = false; rest = NONE; list = NONE; taken = NONE; oldest = NONE;
  if
  :: heir != NONE ->
     d_step {
       assert(key_of_call[heir] == key_of_call[id] && state[heir] == WAITS);
       run_of[heir] = f; state[heir] = LEADS
     }
  :: else
  fi;
  heir = NONE
}

proctype call(byte id) {
  byte role = RUNS, i = 0, free_run = NONE, node = NONE, seen = NONE;
  byte list = NONE, walk = NONE, after = NONE, rest = NONE, taken = NONE, heir = NONE, oldest = NONE;
  bool pushed = false;
  if :: key_of_call[id] = 0 :: key_of_call[id] = 1 fi;
#ifndef BROKEN_NO_DOOR
  if
  :: atomic { !door -> door = true }
  :: true -> goto alone                /* not within a few looks */
  fi;
#endif
  join_inside();
#ifndef BROKEN_NO_DOOR
  door = false;
#endif
  if
  :: role == WAITS ->
     do
     :: state[id] == ENDED -> goto done
     :: state[id] == LEADS -> break
     :: true ->                        /* leave() */
#ifdef BROKEN_LEAVES_WITHOUT_EXCHANGE
        call_of[node] = NONE;
        end_call(id);
        goto done
#else
        atomic { pushed = (call_of[node] == id); if :: pushed -> call_of[node] = NONE :: else fi };
        if
        :: pushed -> pushed = false; end_call(id); goto done
        :: else -> state[id] == ENDED || state[id] == LEADS
        fi
#endif
     od
  :: role == LEADS -> state[id] = LEADS
  :: else -> goto alone
  fi;
  node = NONE; free_run = NONE;
  if                                   /* the run ends */
  :: end_run(run_of[id])
  :: hand_over(run_of[id])
  fi;
alone:
  end_call(id);
done:
  skip
}

init {
  byte n = 0;
  atomic {
    do :: n < SHARED_RUNS -> head[n] = CLOSED; n++ :: else -> break od; n = 0;
    do :: n < NODES -> call_of[n] = NONE; is_free[n] = true; n++ :: else -> break od; n = 0;
    do :: n < CALLS -> run call(n); n++ :: else -> break od; n = 0
  }
  timeout ->
  assert(ends[0] == 1 && ends[1] == 1 && ends[2] == 1);
  assert(is_free[0] && is_free[1] && call_of[0] == NONE && call_of[1] == NONE);
  assert(head[0] == CLOSED && head[1] == CLOSED)
}
