/* expect: pass; with -DBROKEN_NO_GENERATION: fail; with -DBROKEN_NO_READY: fail; with -DBROKEN_NO_HOLDERS: fail; with -DBROKEN_STORES_STATE: fail; with -DBROKEN_FREES_AT_REMOVAL: fail
 *
 * Slots of stored answers (src/answers/answer_store.cc: find(), let_go(), free_retired(), free_slot(), begin_put(),
 * put_inside(), publish()). Two slots, two keys. Three threads insert an answer each, one at a time inside the store; the
 * index may remove any answer then. Two threads find an answer, read its bytes and let go, twice.
 * The index is taken as one step: a key names a slot and its generation, perhaps an old one, as its readers see it.
 * Shown: an answer that is read is whole, of the key that was asked for, and stays so while it is held; once nothing
 * moves each slot that no index names is free or on the list of those to be freed.
 *
 * BROKEN_NO_GENERATION     find() takes the slot whatever its generation
 * BROKEN_NO_READY          find() takes an answer that is still written
 * BROKEN_NO_HOLDERS        find() takes a slot that nobody holds
 * BROKEN_STORES_STATE      find() loads the state and stores it one higher
 * BROKEN_FREES_AT_REMOVAL  an answer that the index removes is freed at once
 */
#define SLOTS 2
#define KEYS 2
#define NONE 255

byte generation[SLOTS];        /* the three parts of AnswerSlot::state: one word, so one step reads or changes them */
bool ready[SLOTS];
byte holders[SLOTS];
byte bytes_of[SLOTS];          /* the key whose answer lies there; NONE: written in part, or free */
bool is_free[SLOTS];
bool is_retired[SLOTS];
byte index_slot[KEYS];         /* NONE: the key is not there */
byte index_generation[KEYS];
bool inside = false;
byte ended = 0;

/* The last holder hands the slot over. */
inline let_go(s) {
  atomic {
    assert(holders[s] > 0);
    holders[s]--;
    was_last = (holders[s] == 0)
  };
  if
  :: was_last -> assert(!is_retired[s] && !is_free[s]); is_retired[s] = true
  :: else
  fi;
  was_last = false
}

inline free_slot(s) {
  bytes_of[s] = NONE;          /* the block is another's from here on */
  atomic { generation[s] = generation[s] + 1; ready[s] = false; holders[s] = 0 };
  is_free[s] = true
}

inline free_retired() {
  t = 0;
  do
  :: t < SLOTS ->
     if
     :: atomic { is_retired[t] -> is_retired[t] = false }; free_slot(t)
     :: else
     fi;
     t++
  :: else -> break
  od;
  t = 0
}

/* The index lets go of what a key named: on_answer_removed(). */
inline remove_key(k) {
  atomic { gone = index_slot[k]; index_slot[k] = NONE };
  if
  :: gone != NONE ->
#ifdef BROKEN_FREES_AT_REMOVAL
     holders[gone] = 0; free_slot(gone)
#else
     let_go(gone)
#endif
  :: else
  fi;
  gone = NONE
}

proctype inserter(byte key) {
  byte s, t, gone = NONE;
  bool was_last;
  atomic { !inside -> inside = true };   /* try_enter() */
  free_retired();
  if :: remove_key(1 - key) :: skip fi;  /* the index evicts it, or its time has come */
  s = NONE;
  if
  :: is_free[0] -> s = 0
  :: is_free[1] -> s = 1
  :: !is_free[0] && !is_free[1] -> goto leave
  fi;
  is_free[s] = false;
  atomic { holders[s] = 2; ready[s] = false };
  remove_key(key);                       /* try_put(): what the key named before goes */
  atomic { index_generation[key] = generation[s]; index_slot[key] = s };
  free_retired();
  inside = false;
  bytes_of[s] = NONE;                    /* the answer's bytes are written */
  bytes_of[s] = key;
  ready[s] = true;                       /* publish() */
  let_go(s);
  goto end;
leave:
  inside = false;
end:
  ended++
}

proctype reader() {
  byte key, s, named, rounds = 2;
  bool is_there, was_last;
  do
  :: rounds > 0 ->
     rounds--;
     if :: key = 0 :: key = 1 fi;
     atomic { s = index_slot[key]; named = index_generation[key] };
     if
     :: s == NONE -> skip
     :: else ->
#ifdef BROKEN_STORES_STATE
        is_there = generation[s] == named && ready[s] && holders[s] > 0;
        if :: is_there -> named = holders[s]; holders[s] = named + 1 :: else fi;
#else
        atomic {                         /* the exchange; one that fails looks once more */
          is_there = true;
#ifndef BROKEN_NO_GENERATION
          is_there = is_there && generation[s] == named;
#endif
#ifndef BROKEN_NO_READY
          is_there = is_there && ready[s];
#endif
#ifndef BROKEN_NO_HOLDERS
          is_there = is_there && holders[s] > 0;
#endif
          if :: is_there -> holders[s]++ :: else fi
        };
#endif
        if
        :: is_there ->
           assert(bytes_of[s] == key);
           assert(bytes_of[s] == key);   /* later */
           let_go(s)
        :: else
        fi
     fi;
     s = 0; named = 0; is_there = false; key = 0
  :: else -> break
  od;
  ended++
}

init {
  byte n = 0;
  atomic {
    do :: n < SLOTS -> is_free[n] = true; bytes_of[n] = NONE; index_slot[n] = NONE; n++ :: else -> break od; n = 0;
    run inserter(0); run inserter(1); run inserter(0);
    run reader(); run reader()
  }
  timeout ->
  assert(ended == 5);
  do
  :: n < SLOTS ->
     if
     :: index_slot[0] == n || index_slot[1] == n -> assert(holders[n] == 1 && ready[n])
     :: else -> assert(holders[n] == 0 && (is_free[n] != is_retired[n]))
     fi;
     n++
  :: else -> break
  od
}
