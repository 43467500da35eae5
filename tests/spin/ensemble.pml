/* expect: pass; with -DBROKEN_TELLS_EACH: fail; with -DBROKEN_LOOKS_FIRST: fail; with -DBROKEN_TAKES_BEFORE_OWNER: fail
 *
 * Steps of an ensemble that return, and the I/O thread that takes them (src/service/ensemble_run.cc: go_on(), returned();
 * src/service/dispatcher.cc: take_back(), end_ensemble()). Three steps: 0 and 1 run at the same time, 2 waits for both.
 * A message to the owner is an intrusive node of the call: a second one while the first is there would break its list.
 * Shown: at most one message is there at a time; each step is taken once; no thread touches the run after its end; once
 * nothing moves the call has ended, once.
 *
 * BROKEN_TELLS_EACH          each step that returns tells the owner
 * BROKEN_LOOKS_FIRST         a thread looks whether there is another bit, and sets its own afterwards
 * BROKEN_TAKES_BEFORE_OWNER  the I/O thread looks at the bits without a message
 */
#define STEPS 3
#define ALL 7

byte bits = 0;          /* returned_ */
byte messages = 0;      /* of this call, on their way to the owner */
bool away[STEPS];       /* submitted, not taken */
bool is_done[STEPS];
byte taken[STEPS];
bool runs[STEPS];       /* the engine has it */
byte ended = 0;

inline tell() { atomic { assert(messages == 0); assert(ended == 0); messages++ } }

proctype worker(byte step) {
  byte before;
  runs[step];
#ifdef BROKEN_LOOKS_FIRST
  before = bits;
  assert(ended == 0);
  bits = bits | (1 << step);
#else
  d_step { assert(ended == 0); before = bits; bits = bits | (1 << step) }   /* fetch_or */
#endif
#ifdef BROKEN_TELLS_EACH
  tell()
#else
  if :: before == 0 -> tell() :: else fi
#endif
}

inline submit(step) { away[step] = true; runs[step] = true }

proctype io_thread() {
  byte seen;
  byte i;
  submit(0); submit(1);
  do
  :: ended > 0 -> break
  :: else ->
#ifdef BROKEN_TAKES_BEFORE_OWNER
     if :: messages > 0 -> messages-- :: bits != 0 fi;
#else
     d_step { messages > 0; messages-- };
#endif
     d_step { seen = bits; bits = 0 };                                       /* exchange */
     d_step {
       i = 0;
       do
       :: i < STEPS ->
          if
          :: (seen >> i) & 1 -> assert(away[i]); away[i] = false; is_done[i] = true; taken[i]++
          :: else
          fi;
          i++
       :: else -> break
       od;
       i = 0
     };
     if
     :: is_done[0] && is_done[1] && !away[2] && !is_done[2] -> submit(2)
     :: else
     fi;
     if
     :: !away[0] && !away[1] && !away[2] -> ended++
     :: else
     fi
  od
}

active proctype monitor() {
  timeout;
  assert(ended == 1);
  assert(taken[0] == 1 && taken[1] == 1 && taken[2] == 1);
  assert(messages == 0 && bits == 0)
}

init { atomic { run io_thread(); run worker(0); run worker(1); run worker(2) } }
