/* expect: pass; with -DBROKEN_ASKER_STORES: fail; with -DBROKEN_TABLE_LOOKS: fail; with -DBROKEN_ABANDON_EXCHANGES: fail
 *
 * Ask::word of lumen::sequences (src/sequences/ask.h, src/sequences/sequence_table.cc): a call asks for its turn in a sequence. The call's
 * I/O thread parks it unless the answer is there already, and may abandon it later; another thread
 * decides at any moment: it grants the turn, or refuses it. The node of a parked call that is refused, and
 * of one that was abandoned, is free at once, and a second call takes it.
 * Shown: each call goes on exactly once: at once, by being resumed or completed, or by having been
 * abandoned; the table never touches an abandoned call.
 * BROKEN_ASKER_STORES       parks by a store instead of an exchange
 * BROKEN_TABLE_LOOKS        decides by a look and a store
 * BROKEN_ABANDON_EXCHANGES  abandons by an exchange, which takes no look at whose node it is by now
 */
#define ASKING 0
#define PARKED 1
#define DECIDED 2
#define ABANDONED 3
#define WORD(call, what) ((call) * 4 + (what))

byte state = WORD(0, ASKING);
byte goes_on[2];
bool is_gone[2];       /* the call's memory is another's */
bool is_free[2];       /* the node was freed by this call's end */
byte through = 0;

proctype io_thread(byte call) {
  byte old;
  bool is_parked = false;
  /* before(): SequenceTable::is_answered() */
#ifdef BROKEN_ASKER_STORES
  old = state;
  state = WORD(call, PARKED);
#else
  d_step { old = state; state = WORD(call, PARKED) };
#endif
  if
  :: old == WORD(call, DECIDED) -> goes_on[call]++
  :: old != WORD(call, DECIDED) -> is_parked = true
  fi;
  /* abandon(), or not */
  if
  :: is_parked ->
     if
     :: skip ->
#ifdef BROKEN_ABANDON_EXCHANGES
        d_step { old = state; state = WORD(call, ABANDONED) };
        if
        :: old == WORD(call, PARKED) -> is_gone[call] = true; goes_on[call]++
        :: old != WORD(call, PARKED) -> skip
        fi
#else
        if
        :: atomic { state == WORD(call, PARKED) -> state = WORD(call, ABANDONED) };
           is_gone[call] = true; goes_on[call]++
        :: state != WORD(call, PARKED) -> skip
        fi
#endif
     :: skip
     fi
  :: !is_parked -> skip
  fi;
  through++
}

/* answer() */
proctype table(byte call) {
  byte old;
#ifdef BROKEN_TABLE_LOOKS
  old = state;
  state = WORD(call, DECIDED);
#else
  d_step { old = state; state = WORD(call, DECIDED) };
#endif
  if
  :: old == WORD(call, PARKED) ->
     assert(!is_gone[call]);
     if
     :: skip                        /* granted: the node is the call's until its end */
     :: is_free[call] = true        /* refused */
     fi;
     goes_on[call]++
  :: old == WORD(call, ABANDONED) -> is_free[call] = true
  :: old == WORD(call, ASKING) -> skip
  :: else -> assert(false)          /* the word of another call */
  fi;
  through++
}

init {
  byte calls = 1;
  atomic { run io_thread(0); run table(0) };
  if
  :: is_free[0] -> state = WORD(1, ASKING); calls = 2; atomic { run io_thread(1); run table(1) }
  :: through == 2 && !is_free[0] -> skip
  fi;
  through == 2 * calls;
  assert(goes_on[0] == 1);
  assert(calls == 1 || goes_on[1] == 1)
}
