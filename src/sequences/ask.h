// Ask: a call's question for its turn in a sequence, from SequenceTable::ask() until the call has
// run or was refused. A node of its own and not the call, since a call that is late or cancelled
// leaves at once, and its memory is another's then.
// Threads: as `state` says. Memory: the table's. Errors: none.
#pragma once

#include <lumen/base/limits.h>
#include <lumen/models/sequence_turn.h>
#include <lumen/service/call.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <string_view>

namespace lumen::sequences {

struct Sequence;

// A number, or a text; a number as text is another.
struct SequenceKey {
  uint64_t number = 0;
  uint8_t bytes = 0;  // of the text
  std::array<char, limits::kMaxSequenceIdBytes> characters{};

  [[nodiscard]] std::string_view text() const noexcept { return {characters.data(), bytes}; }
  void set(const wire::SequenceWishes& wishes) noexcept {
    number = wishes.number;
    bytes = static_cast<uint8_t>(std::min(wishes.text.size(), characters.size()));
    std::copy_n(wishes.text.data(), bytes, characters.data());
  }
  // For a model that takes ids as texts a number is the one of its digits.
  void become_text() noexcept {
    if (bytes > 0) return;
    char* const end = characters.data() + characters.size();
    bytes =
        static_cast<uint8_t>(std::to_chars(characters.data(), end, number).ptr - characters.data());
    number = 0;
  }
  friend bool operator==(const SequenceKey& one, const SequenceKey& other) noexcept {
    return one.number == other.number && one.text() == other.text();
  }
};

// Each thread exchanges it for its own; by the one before it knows its part.
enum class AskState : uint8_t {
  kAsking,     // the call's thread is in before()
  kParked,     // it has left before(): the call is to be resumed
  kDecided,    // by the table
  kAbandoned,  // the call is gone
};

enum class Answer : uint8_t {
  kItsTurn,
  kUnknown,  // no such sequence is live, and it does not start one
  kFull,     // as many are live as may be
};

struct Ask {
  enum class Kind : uint8_t { kTurn, kEnd, kSweep };  // the table's task with it

  Ask* next = nullptr;    // of the inbox
  Ask* behind = nullptr;  // of those that wait for the same sequence
  Kind kind = Kind::kTurn;
  bool has_failed = false;
  Answer answer = Answer::kItsTurn;
  // A state, and the number of the call in all upper bits: a thread that abandons a call which was
  // just refused may find the node with another call. tests/spin/sequence_ask.pml models it.
  std::atomic<uint64_t> word{0};
  uint64_t number = 0;  // of the calls that this node was of; by the call's thread, in ask()
  service::Call* call = nullptr;
  Sequence* sequence = nullptr;  // whose turn it has
  uint64_t now_ns = 0;
  uint64_t hash = 0;
  SequenceKey key{};
  // The call's, once it has its turn; its id is the key's.
  models::SequenceTurn turn{};

  [[nodiscard]] static uint64_t word_of(uint64_t number, AskState state) noexcept {
    return number << 2 | static_cast<uint64_t>(state);
  }
  // By a thread that knows the node to be this call's. Returns the state before.
  [[nodiscard]] AskState exchange(AskState state) noexcept {
    // sync[sequence.ask]: acquire and release; the answer to the call's thread, the call to the
    // thread that decides
    const uint64_t before = word.exchange(word_of(number, state), std::memory_order_acq_rel);
    return static_cast<AskState>(before & 3);
  }
};

}  // namespace lumen::sequences
