/* expect: pass; with -DONE_WORD: pass; with -DNODES: pass; with -DNODES_OF_ONE_WORD: pass; with -DBROKEN_COPY: fail; with -DBROKEN_NODES: fail; with -DBROKEN_WORDS: fail; with -DBROKEN_BEGIN: fail; with -DBROKEN_CONTROL: fail; with -DBROKEN_LOOK: fail; with -DBROKEN_MISS: fail; with -DBROKEN_DIRECTORY: fail; with -DBROKEN_ARRAY: fail; with -DBROKEN_PAIR: fail; with -DBROKEN_PUBLISH: fail; with -DBROKEN_ASIDE: fail; with -DBROKEN_REMOVED: fail; with -DBROKEN_REUSE: fail
 *
 * A reader beside a writer in lumen::cache::Table: the versions of segments and the second look at the directory
 * (include/lumen/cache/detail/segment.h, directory.h, value_copy.h; table_reads.h: read_on(), of which read() is the beginning, look_at();
 * table_writes.h: insert(), replace();
 * table_growth.h: refill(), split(), begin_anew()). The writer, who has the lock, does any three of: put, erase,
 * clear, on three keys; the first has the value 1 at the start. The reader looks for key 1 or 2, once, at any time.
 * A group has two slots, a segment one or two groups; it grows in place, or into another region where its own is
 * too small, and may be split whenever something is put. Key 1 is in the lower half of the hashes. A value is two
 * words, and what is given back is emptied, as the kernel does it. All tags are equal. A slot is copied aside whole.
 * One writer at a time stores the cells in order, by releases, and the reader loads them in order, by acquires, but
 * for the words of a value, which a vector may hold (value_copy.h). So
 * the reader sees the memory as it was at a time that only goes on, and an interleaving of whole steps shows all of
 * that. The relaxed store of begin_write() may be seen early, never late: then the reader begins again.
 * Shown: the answer is the key's value, or its absence, at some time of the look, and the words of a value belong
 * together; the reader looks at no slot behind a region.
 * ONE_WORD          an entry is one word, which is stored over the one before without raising the version (its deadline stays)
 * NODES             a slot holds a hash (the key's number here) and the number of a node, whose key stays; a put over it
 *                   stores its value anew, and a reader that finds its hash copies the value out of the node
 *                   (cache_hazard.pml shows that the node is not freed meanwhile)
 * NODES_OF_ONE_WORD both
 * BROKEN_COPY       NODES without a look at the version after that copy
 * BROKEN_NODES      NODES whose values of two words are stored as if they were one
 * BROKEN_WORDS      ONE_WORD with an entry of two words
 * BROKEN_BEGIN      the version is not raised before a change, only after it
 * BROKEN_CONTROL    the control byte of a new entry is stored first
 * BROKEN_LOOK       no second look at the version when the key is found
 * BROKEN_MISS       nor when it is not
 * BROKEN_DIRECTORY  no second look at the directory when it is not
 * BROKEN_ARRAY      that look does not ask whether the directory has grown
 * BROKEN_PAIR       no look at the version between groups and data, and the slots that they name
 * BROKEN_PUBLISH    a split takes entries from the segment before the directory leads to their new one
 * BROKEN_ASIDE      a segment is filled anew in the sight of readers
 * BROKEN_REMOVED    the slot of an erased entry is empty though searches must pass it
 * BROKEN_REUSE      the version of a segment that is given back stays as it is
 */
#ifdef NODES_OF_ONE_WORD
#define NODES
#define ONE_WORD
#endif
#ifdef BROKEN_COPY
#define NODES
#endif
#ifdef BROKEN_NODES
#define NODES
#define BROKEN_WORDS
#endif

#define OPERATIONS 3
#define KEYS 3
#define HALF(k) ((k) == 1 -> 0 : 1)

#define EMPTY 0
#define REMOVED 1
#define TAG 2
#define NONE 255

/* Rows of slots: 0 and 1 are regions of one group, 2 to 4 of two, 5 is where entries are put aside. */
#define ASIDE 5
#define AT(row, slot) ((row) * 4 + (slot))
#define ROOM(row) ((row) < 2 -> 2 : 4)
byte control[24];
byte its_key[24];
byte word[24];
byte word2[24];

#ifdef NODES
byte node_key[OPERATIONS + 2];  /* 0: none */
byte node_word[OPERATIONS + 2];
byte node_word2[OPERATIONS + 2];
byte nodes = 0;
#define FIRST_WORD(i) node_word[word[i]]
#define SECOND_WORD(i) node_word2[word[i]]
/* Nobody sees it before the slot does. */
inline make_entry(i, k, value) {
  d_step { nodes++; node_key[nodes] = k; node_word[nodes] = value; node_word2[nodes] = value }
  word[i] = nodes
}
#else
#define FIRST_WORD(i) word[i]
#define SECOND_WORD(i) word2[i]
inline make_entry(i, k, value) {
  word[i] = value;
  word2[i] = value
}
#endif

byte version[3];  /* of segments: odd while one is of none, or is changed */
byte groups[3];
byte data[3];

byte shown = 0;   /* which array of the directory */
byte narrow = 0;  /* array 0: one entry for all */
byte wide[2];     /* array 1: an entry for each half */
#define LEADS(array, k) ((array) == 0 -> narrow : wide[HALF(k)])

/* What the key is, and what it has been since the reader began: a bit a value. */
byte now[KEYS + 1];
byte reading = 0;
byte possible = 0;

inline becomes(k, value) {
  now[k] = value;
  if
  :: reading == k -> possible = possible | (1 << (value))
  :: else
  fi
}

/* ---- the writer's */
byte free_segments[2], free_segment_count;
byte free_rows[3], free_row_count;

inline begin_write(s) {
#ifdef BROKEN_BEGIN
  skip
#else
  version[s]++
#endif
}
inline raise_version(s) {
#ifdef BROKEN_BEGIN
  version[s] = version[s] + 2
#else
  version[s]++
#endif
}
inline show_row(s, to, count) {
  begin_write(s);
  data[s] = to;
  groups[s] = count;
  raise_version(s)
}

/* Sets s, row, count; spot where the key is, or else vacant and, where there is one before it, gone. */
inline search(k) {
  d_step {
    s = LEADS(shown, k);
    row = data[s];
    count = groups[s];
    spot = NONE;
    vacant = NONE;
    gone = NONE;
    at = count - 1;  /* home: the last group */
    do
    :: i = AT(row, at * 2);
       if
       :: control[i] == TAG && its_key[i] == k -> spot = at * 2; break
       :: control[i + 1] == TAG && its_key[i + 1] == k -> spot = at * 2 + 1; break
       :: else
       fi;
       if
       :: control[i] == EMPTY -> vacant = at * 2; break
       :: control[i] != EMPTY && control[i + 1] == EMPTY -> vacant = at * 2 + 1; break
       :: else
       fi;
       if
       :: gone == NONE && control[i] == REMOVED -> gone = at * 2
       :: gone == NONE && control[i] != REMOVED && control[i + 1] == REMOVED -> gone = at * 2 + 1
       :: else
       fi;
       at = (at + 1 == count -> 0 : at + 1)
    od;
    i = 0;
    at = 0
  }
}
/* Into `used`: slots that are not empty, and whether no more may be taken. */
inline count_used() {
  d_step {
    used = 0;
    i = 0;
    do
    :: i == count * 2 -> break
    :: else -> used = used + (control[AT(row, i)] == EMPTY -> 0 : 1); i++
    od;
    is_full = (used == count * 2 - 1);
    used = 0;
    i = 0
  }
}

/* Into `used`: groups for the entries of the upper half. */
inline count_above() {
  d_step {
    used = 0;
    i = 0;
    do
    :: i == count * 2 -> break
    :: else ->
       used = used + (control[AT(row, i)] == TAG && HALF(its_key[AT(row, i)]) == 1 -> 1 : 0);
       i++
    od;
    used = (used > 1 -> 2 : 1);
    i = 0
  }
}

inline empty_out(region, its_groups) {
  i = 0;
  do
  :: atomic { i < (its_groups) * 2 -> control[AT(region, i)] = EMPTY; i++ }
  :: else -> break
  od
}
/* Moves all entries to groups that were emptied: those of each half to their own. */
inline fill(from, from_groups, low, low_groups, high, high_groups) {
  i = 0;
  do
  :: i == (from_groups) * 2 -> break
  :: i < (from_groups) * 2 && control[AT(from, i)] != TAG -> i++
  :: else ->
     d_step {
       to = (HALF(its_key[AT(from, i)]) == 0 -> low : high);
       to_groups = (HALF(its_key[AT(from, i)]) == 0 -> low_groups : high_groups);
       at = (to_groups - 1) * 2;
       do
       :: control[AT(to, at)] == EMPTY -> break
       :: else -> at = (at + 1) % (to_groups * 2)
       od;
       its_key[AT(to, at)] = its_key[AT(from, i)]
     }
     word[AT(to, at)] = word[AT(from, i)];
     word2[AT(to, at)] = word2[AT(from, i)];
     atomic { control[AT(to, at)] = TAG; at = 0; to = 0; to_groups = 0; i++ }
  od;
  i = 0
}
inline move_aside() {
  i = 0;
  do
  :: i == count * 2 -> break
  :: else ->
     d_step {
       control[AT(ASIDE, i)] = control[AT(row, i)];
       its_key[AT(ASIDE, i)] = its_key[AT(row, i)];
       word[AT(ASIDE, i)] = word[AT(row, i)];
       word2[AT(ASIDE, i)] = word2[AT(row, i)];
       i++
     }
  od;
  i = 0;
#ifndef BROKEN_ASIDE
  show_row(s, ASIDE, count)
#endif
}
inline release_from(region, first) {
  d_step {
    i = first;
    do
    :: i < ROOM(region) ->
       control[AT(region, i)] = 0; its_key[AT(region, i)] = 0; word[AT(region, i)] = 0; word2[AT(region, i)] = 0;
       i++
    :: else -> break
    od;
    i = 0
  }
}
inline take_row() {
  d_step { free_row_count--; fresh_row = free_rows[free_row_count] }
}
inline new_segment(count_of_new) {
  d_step { free_segment_count--; fresh = free_segments[free_segment_count] }
  data[fresh] = fresh_row;
  groups[fresh] = count_of_new;
  empty_out(fresh_row, count_of_new)
}

inline refill(larger) {
  if
  :: (larger) * 2 <= ROOM(row) ->
     move_aside();
     empty_out(row, larger);
     fill(ASIDE, count, row, larger, row, larger);
     show_row(s, row, larger)
  :: else ->
     take_row();
     empty_out(fresh_row, larger);
     fill(row, count, fresh_row, larger, fresh_row, larger);
     show_row(s, fresh_row, larger);
     fresh_row = 0
  fi
}
inline split() {
  if
  :: shown == 0 -> d_step { wide[0] = narrow; wide[1] = narrow } shown = 1
  :: else
  fi;
  count_above();
  take_row();
  new_segment(used);
  move_aside();
  empty_out(row, 1);
  empty_out(fresh_row, used);
  fill(ASIDE, count, row, 1, fresh_row, used);
#ifdef BROKEN_PUBLISH
  show_row(s, row, 1);
#endif
  version[fresh]++;
  wide[1] = fresh;
#ifndef BROKEN_PUBLISH
  show_row(s, row, 1);
#endif
  release_from(row, 2);
  fresh = 0;
  fresh_row = 0;
  used = 0
}

inline put(k, value) {
  search(k);
  if
  :: spot != NONE ->
#ifdef ONE_WORD
     d_step { FIRST_WORD(AT(row, spot)) = value; SECOND_WORD(AT(row, spot)) = value; becomes(k, value) }
#else
#ifdef BROKEN_WORDS
     FIRST_WORD(AT(row, spot)) = value;
     d_step { SECOND_WORD(AT(row, spot)) = value; becomes(k, value) }
#else
     begin_write(s);
     if
     :: FIRST_WORD(AT(row, spot)) = value; SECOND_WORD(AT(row, spot)) = value
     :: SECOND_WORD(AT(row, spot)) = value; FIRST_WORD(AT(row, spot)) = value
     fi;
     atomic { raise_version(s); becomes(k, value) }
#endif
#endif
  :: else ->
     count_used();
     if
     :: gone == NONE && count == 2 && LEADS(shown, 1) == LEADS(shown, 2) ->
        split();
        search(k);
        count_used();
        if
        :: is_full -> refill(2); search(k)
        :: else
        fi
     :: gone == NONE && is_full -> refill(2); search(k)
     :: !(gone == NONE && is_full)
     fi;
     is_full = false;
     if
     :: gone != NONE -> spot = gone
     :: else -> spot = vacant
     fi;
#ifdef BROKEN_CONTROL
     control[AT(row, spot)] = TAG;
#endif
     its_key[AT(row, spot)] = k;
     make_entry(AT(row, spot), k, value);
     atomic { control[AT(row, spot)] = TAG; becomes(k, value) }
  fi
}
inline remove(k) {
  begin_write(s);
#ifdef BROKEN_REMOVED
  control[AT(row, spot)] = EMPTY;
#else
  control[AT(row, spot)] = (control[AT(row, spot ^ 1)] == EMPTY -> EMPTY : REMOVED);
#endif
  atomic { raise_version(s); becomes(k, 0) }
}
inline erase(k) {
  search(k);
  if
  :: spot != NONE -> remove(k)
  :: else
  fi
}
/* The directory leads to it until another one is published. */
inline retire(s) {
#ifndef BROKEN_REUSE
  version[s]++;
#endif
  if
  :: data[s] > 1 ->
     release_from(data[s], 0);
     d_step { free_rows[free_row_count] = data[s]; free_row_count++ }
  :: else
  fi;
  d_step { free_segments[free_segment_count] = s; free_segment_count++ }
}
inline clear() {
  erase(1);
  erase(2);
  erase(3);
  s = LEADS(shown, 1);
  row = LEADS(shown, 2);
  fresh_row = (data[s] == 0 || data[row] == 0 -> 1 : 0);  /* only the first segment is that small */
  new_segment(1);
  retire(s);
  if
  :: row != s -> retire(row)
  :: else
  fi;
  version[fresh] = (version[fresh] / 2 + 1) * 2;
  if
  :: shown == 0 -> narrow = fresh
  :: else -> wide[0] = fresh; wide[1] = fresh
  fi;
  fresh = 0;
  fresh_row = 0
}

proctype writer() {
  byte s, row, count, spot, vacant, gone, at, i, used, to, to_groups, fresh, fresh_row, k;
  byte done = 0;
  bool is_full;
  do
  :: done == OPERATIONS -> break
  :: done < OPERATIONS ->
     if
     :: k = 3
     :: k = 2
     :: k = 1
     :: k = 0
     fi;
     if
     :: k != 0 -> put(k, done + 2)
     :: k != 0 && now[k] != 0 -> erase(k)
     :: k == 0 -> clear()
     fi;
     d_step { s = 0; row = 0; count = 0; spot = 0; vacant = 0; gone = 0; k = 0; done++ }
  od
}

/* ---- the reader's */
inline forget() {
  d_step { s = 0; seen = 0; array = 0; count = 0; row = 0; at = 0; left = 0; tag = 0; tag2 = 0 }
}
/* In either order, as the words of a vector (value_copy.h). */
inline load_words(first, second) {
  if
  :: value = first; value2 = second
  :: value2 = second; value = first
  fi
}
/* Goes on behind it where the slot has another key. */
#ifdef NODES
inline look_at(slot) {
  found_key = its_key[AT(row, slot)];
  node = word[AT(row, slot)];
  if
  :: found_key == k && version[s] != seen -> d_step { found_key = 0; node = 0 } goto again
  :: else
  fi;
  if
  :: found_key != k || node_key[node] != k
  :: found_key == k && node_key[node] == k ->
#ifdef ONE_WORD
     d_step { value = node_word[node]; value2 = node_word2[node] }
#else
     load_words(node_word[node], node_word2[node]);
#endif
#ifndef BROKEN_COPY
     if
     :: version[s] != seen -> d_step { found_key = 0; node = 0; value = 0; value2 = 0 } goto again
     :: else
     fi;
#endif
     assert(value == value2);
     assert(possible & (1 << value));
     goto done
  fi;
  d_step { found_key = 0; node = 0 }
}
#else
inline look_at(slot) {
#ifdef ONE_WORD
  d_step { found_key = its_key[AT(row, slot)]; value = word[AT(row, slot)]; value2 = word2[AT(row, slot)] };
#else
  found_key = its_key[AT(row, slot)];
  load_words(word[AT(row, slot)], word2[AT(row, slot)]);
#endif
  if
  :: found_key != k
#ifndef BROKEN_LOOK
  :: found_key == k && version[s] != seen -> d_step { found_key = 0; value = 0; value2 = 0 } goto again
  :: found_key == k && version[s] == seen ->
#else
  :: found_key == k ->
#endif
     assert(value == value2);
     assert(possible & (1 << value));
     goto done
  fi;
  d_step { found_key = 0; value = 0; value2 = 0 }
}
#endif

proctype reader() {
  byte k, array, s, seen, count, row, at, left, tag, tag2, found_key, node, value, value2;
  if
  :: k = 1
  :: k = 2
  fi;
  atomic { reading = k; possible = 1 << now[k] }
again:
  forget();
  array = shown;
  s = LEADS(array, k);
  seen = version[s];
  count = groups[s];
  row = data[s];
  if
  :: seen % 2 == 1 -> goto again
#ifndef BROKEN_PAIR
  :: seen % 2 == 0 && version[s] != seen -> goto again
  :: seen % 2 == 0 && version[s] == seen
#else
  :: seen % 2 == 0
#endif
  fi;
  d_step { at = count - 1; left = count }
  do
  :: left == 0 -> break
  :: else ->
     assert(at * 2 < ROOM(row));
     tag = control[AT(row, at * 2)];
     tag2 = control[AT(row, at * 2 + 1)];
     if
     :: tag == TAG -> look_at(at * 2)
     :: else
     fi;
     if
     :: tag2 == TAG -> look_at(at * 2 + 1)
     :: else
     fi;
     if
     :: tag == EMPTY || tag2 == EMPTY -> break
     :: else
     fi;
     d_step { at = (at + 1 == count -> 0 : at + 1); left-- }
  od;
#ifndef BROKEN_MISS
  if
  :: version[s] != seen -> goto again
  :: else
  fi;
#endif
#ifndef BROKEN_DIRECTORY
#ifndef BROKEN_ARRAY
  if
  :: shown != array -> goto again
  :: else
  fi;
#endif
  if
  :: LEADS(array, k) != s -> goto again
  :: else
  fi;
#endif
  assert(possible & 1);
done:
  skip
}

init {
  byte i;
  atomic {
    version[0] = 2; version[1] = 1; version[2] = 1;
    groups[0] = 2; data[0] = 2;
    i = AT(2, 2); control[i] = TAG; its_key[i] = 1; make_entry(i, 1, 1); i = 0; now[1] = 1;
    free_segments[0] = 2; free_segments[1] = 1; free_segment_count = 2;
    free_rows[0] = 4; free_rows[1] = 3; free_row_count = 2;
    run reader(); run writer()
  }
}
