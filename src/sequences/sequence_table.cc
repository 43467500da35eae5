// See the header.
#include "sequences/sequence_table.h"

#include <lumen/base/check.h>
#include <lumen/service/dispatcher.h>

#include "sequences/refusals.h"

#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

namespace lumen::sequences {
namespace {

// Of late sequences: by each question, so that they go as fast as others come, and by a sweep, so
// that no question waits for long.
constexpr size_t kDropsOfATurn = 2;
constexpr size_t kDropsOfASweep = 4096;
// Calls that have left keep their nodes until their sequence's turn ends.
constexpr size_t kAsksOfACall = 2;

size_t buckets_for(uint32_t most) { return std::bit_ceil(size_t{most}); }

// By the one thread that does tasks.
void add_to(std::atomic<uint64_t>& counter, uint64_t change) noexcept {
  // relaxed, both: a statistic with one writer at a time
  counter.store(counter.load(std::memory_order_relaxed) + change, std::memory_order_relaxed);
}

}  // namespace

Result<std::unique_ptr<SequenceTable>> SequenceTable::create(const models::SequenceOptions& options,
                                                             const models::SequenceForm& form,
                                                             size_t calls,
                                                             std::atomic<uint64_t>& live) {
  const std::array<size_t, 3> sizes = {buckets_for(options.most) * sizeof(Sequence*),
                                       options.most * sizeof(Sequence),
                                       2 * options.most * form.state_bytes};
  std::array<Mapping, 3> memory;
  for (size_t i = 0; i < sizes.size(); ++i) {
    Result<Mapping> mapping = Mapping::create(sizes[i]);
    if (!mapping.ok()) return mapping.status();
    memory[i] = std::move(*mapping);
  }
  return std::unique_ptr<SequenceTable>(new SequenceTable(options, form, calls, live, memory));
}

SequenceTable::SequenceTable(const models::SequenceOptions& options,
                             const models::SequenceForm& form, size_t calls,
                             std::atomic<uint64_t>& live, std::span<Mapping> memory)
    : idle_ns_(options.idle_ms * 1'000'000),
      state_bytes_(form.state_bytes),
      first_states_(form.first_states),
      ids_are_texts_(form.id_type == ElementType::kBytes),
      bucket_memory_(std::move(memory[0])),
      sequence_memory_(std::move(memory[1])),
      state_memory_(std::move(memory[2])),
      buckets_(reinterpret_cast<Sequence**>(bucket_memory_.data()), buckets_for(options.most)),
      most_(options.most),
      ask_count_(kAsksOfACall * calls),
      asks_(std::make_unique<Ask[]>(ask_count_)),
      free_asks_(std::bit_ceil(ask_count_)),
      live_(live) {
  for (size_t i = 0; i < ask_count_; ++i) free(asks_[i]);
}

bool SequenceTable::is_idle() const noexcept { return free_asks_.size_was() == ask_count_; }

Sequences::Usage SequenceTable::usage() const noexcept {
  // relaxed, all three: statistics
  const uint64_t live = live_.load(std::memory_order_relaxed);
  const uint64_t started = started_.load(std::memory_order_relaxed);
  const uint64_t dropped = dropped_.load(std::memory_order_relaxed);
  return {.live = live,
          .most = most_,
          .state_bytes = live * state_bytes_,
          .started = started,
          .dropped = dropped};
}

// --- by the call's threads -----------------------------------------------------------------------

Ask* SequenceTable::ask(service::Call& call, uint64_t now_ns) noexcept {
  Ask* ask = nullptr;
  if (!free_asks_.try_pop(ask)) return nullptr;
  ask->kind = Ask::Kind::kTurn;
  ask->call = &call;
  ask->sequence = nullptr;
  ask->behind = nullptr;
  ask->now_ns = now_ns;
  ask->key.set(call.sequence);
  if (ids_are_texts_) ask->key.become_text();
  const std::string_view text = ask->key.text();
  ask->turn = {.starts = call.sequence.starts,
               .ends = call.sequence.ends,
               .number = ask->key.number,
               .text = text};
  ask->hash = hash_
                  .xxh3(text.empty() ? std::as_bytes(std::span(&ask->key.number, 1))
                                     : std::as_bytes(std::span(text)))
                  .low;
  call.sequence_ask = ask;
  call.sequence_number = ++ask->number;
  // relaxed: the inbox releases it
  ask->word.store(Ask::word_of(ask->number, AskState::kAsking), std::memory_order_relaxed);
  inbox_.run(*ask, [this](Ask& one) noexcept { work(one); });
  return ask;
}

bool SequenceTable::is_answered(Ask& ask) noexcept {
  return ask.exchange(AskState::kParked) == AskState::kDecided;
}

bool SequenceTable::abandon(service::Call& call) noexcept {
  uint64_t expected = Ask::word_of(call.sequence_number, AskState::kParked);
  const uint64_t wanted = Ask::word_of(call.sequence_number, AskState::kAbandoned);
  // sync[sequence.ask]: release; this thread is through with the call
  return call.sequence_ask->word.compare_exchange_strong(
      expected, wanted, std::memory_order_release, std::memory_order_relaxed);
}

void SequenceTable::free(Ask& ask) noexcept {
  Ask* node = &ask;
  LUMEN_CHECK(free_asks_.try_push(std::move(node)));
}

void SequenceTable::end(Ask& ask, bool has_failed, uint64_t now_ns) noexcept {
  ask.kind = Ask::Kind::kEnd;
  ask.has_failed = has_failed;
  ask.now_ns = now_ns;
  inbox_.run(ask, [this](Ask& one) noexcept { work(one); });
}

void SequenceTable::sweep(uint64_t now_ns) noexcept {
  Ask* ask = nullptr;
  if (!free_asks_.try_pop(ask)) return;  // its requests drop them, then
  ask->kind = Ask::Kind::kSweep;
  ask->now_ns = now_ns;
  inbox_.run(*ask, [this](Ask& one) noexcept { work(one); });
}

// --- one task at a time --------------------------------------------------------------------------

void SequenceTable::work(Ask& ask) noexcept {
  switch (ask.kind) {
    case Ask::Kind::kTurn: drop_late(kDropsOfATurn, ask.now_ns); return turn(ask, ask.now_ns);
    case Ask::Kind::kEnd: return finish(ask);
    case Ask::Kind::kSweep: drop_late(kDropsOfASweep, ask.now_ns); return free(ask);
  }
}

void SequenceTable::turn(Ask& ask, uint64_t now_ns) noexcept {
  Sequence* sequence = find(ask);
  if (sequence != nullptr && is_resting(*sequence)) {
    unrest(*sequence);
    if (is_late(*sequence, now_ns)) {
      add_to(dropped_, 1);
      remove(*std::exchange(sequence, nullptr));
    }
  }
  if (sequence == nullptr) {
    if (!ask.turn.starts) return answer_or_free(ask, Answer::kUnknown);
    sequence = add(ask, now_ns);
    if (sequence == nullptr) return answer_or_free(ask, Answer::kFull);
  }
  if (sequence->running != nullptr) {
    (sequence->last_waiting != nullptr ? sequence->last_waiting->behind : sequence->first_waiting) =
        &ask;
    sequence->last_waiting = &ask;
    return;
  }
  if (begin(*sequence, ask)) return;
  free(ask);
  settle(*sequence, sequence->is_fresh, now_ns);
}

void SequenceTable::finish(Ask& ask) noexcept {
  Sequence& sequence = *ask.sequence;
  const bool is_over = ask.has_failed ? sequence.is_fresh : ask.turn.ends;
  if (!ask.has_failed) {
    sequence.is_fresh = false;
    std::swap(sequence.state, sequence.new_state);
  }
  const uint64_t now_ns = ask.now_ns;
  free(ask);
  settle(sequence, is_over, now_ns);
}

// The turn of a request is over: another's begins, or none is there. Requests that wait for a
// sequence that is over ask again, since one of them may start it anew.
void SequenceTable::settle(Sequence& sequence, bool is_over, uint64_t now_ns) noexcept {
  sequence.running = nullptr;
  while (!is_over) {
    Ask* const next = sequence.first_waiting;
    if (next == nullptr) return rest(sequence, now_ns);
    sequence.first_waiting = std::exchange(next->behind, nullptr);
    if (sequence.first_waiting == nullptr) sequence.last_waiting = nullptr;
    if (begin(sequence, *next)) return;
    sequence.running = nullptr;
    free(*next);
    is_over = sequence.is_fresh;
  }
  Ask* waiting = std::exchange(sequence.first_waiting, nullptr);
  remove(sequence);
  while (waiting != nullptr) {
    Ask& one = *std::exchange(waiting, waiting->behind);
    one.behind = nullptr;
    turn(one, now_ns);
  }
}

// False: its call has left.
bool SequenceTable::begin(Sequence& sequence, Ask& ask) noexcept {
  ask.sequence = &sequence;
  sequence.running = &ask;
  if (ask.turn.starts) {
    if (first_states_.empty()) {
      std::memset(sequence.state, 0, state_bytes_);
    } else {
      std::memcpy(sequence.state, first_states_.data(), state_bytes_);
    }
    sequence.is_fresh = true;
    add_to(started_, 1);
  }
  ask.turn.state = sequence.state;
  ask.turn.new_state = sequence.new_state;
  return answer(ask, Answer::kItsTurn);
}

bool SequenceTable::answer(Ask& ask, Answer answer) noexcept {
  ask.answer = answer;
  service::Call& call = *ask.call;
  switch (ask.exchange(AskState::kDecided)) {
    case AskState::kAbandoned: return false;
    case AskState::kParked: break;
    default: return true;  // its thread goes on with it
  }
  if (answer == Answer::kItsTurn) {
    call.infer.turn = &ask.turn;
    service::resume(call);
    return true;
  }
  call.infer.status = refusal(answer, call);
  free(ask);
  service::complete(call);
  return true;
}

void SequenceTable::answer_or_free(Ask& ask, Answer refused) noexcept {
  if (!answer(ask, refused)) free(ask);
}

Sequence* SequenceTable::find(const Ask& ask) noexcept {
  Sequence* sequence = bucket_of(ask.hash);
  while (sequence != nullptr && (sequence->hash != ask.hash || !(sequence->key == ask.key))) {
    sequence = sequence->next_in_bucket;
  }
  return sequence;
}

Sequence* SequenceTable::add(const Ask& ask, uint64_t now_ns) noexcept {
  if (free_ == nullptr && made_ == most_) drop_late(1, now_ns);
  Sequence* sequence = free_;
  if (sequence != nullptr) {
    free_ = sequence->next_in_bucket;
  } else if (made_ < most_) {
    std::byte* const place = sequence_memory_.data() + made_ * sizeof(Sequence);
    sequence = ::new (static_cast<void*>(place)) Sequence();
    sequence->state = state_memory_.data() + 2 * made_ * state_bytes_;
    sequence->new_state = sequence->state + state_bytes_;
    ++made_;
  } else {
    return nullptr;
  }
  sequence->hash = ask.hash;
  sequence->key = ask.key;
  sequence->next_in_bucket = std::exchange(bucket_of(ask.hash), sequence);
  add_to(live_, 1);
  return sequence;
}

// It is in no list of resting ones, and none waits for it.
void SequenceTable::remove(Sequence& sequence) noexcept {
  Sequence** link = &bucket_of(sequence.hash);
  while (*link != &sequence) link = &(*link)->next_in_bucket;
  *link = sequence.next_in_bucket;
  sequence.running = nullptr;
  sequence.last_waiting = nullptr;
  sequence.is_fresh = false;
  sequence.next_in_bucket = std::exchange(free_, &sequence);
  add_to(live_, uint64_t{0} - 1);
}

void SequenceTable::rest(Sequence& sequence, uint64_t now_ns) noexcept {
  sequence.last_ns = now_ns;
  sequence.newer = nullptr;
  sequence.older = std::exchange(newest_, &sequence);
  (sequence.older != nullptr ? sequence.older->newer : oldest_) = &sequence;
}

void SequenceTable::unrest(Sequence& sequence) noexcept {
  (sequence.older != nullptr ? sequence.older->newer : oldest_) = sequence.newer;
  (sequence.newer != nullptr ? sequence.newer->older : newest_) = sequence.older;
}

void SequenceTable::drop_late(size_t most, uint64_t now_ns) noexcept {
  for (; most > 0 && oldest_ != nullptr && is_late(*oldest_, now_ns); --most) {
    Sequence& sequence = *oldest_;
    unrest(sequence);
    add_to(dropped_, 1);
    remove(sequence);
  }
}

}  // namespace lumen::sequences
