// Whether a map's answers to threads could have come from one that does their calls one after the
// other.
//
// A history is linearizable (Herlihy and Wing 1990) if each call can be given a moment between its
// beginning and its return at which all of it happens. One of a map is, if that of each key is, so
// keys are checked apart. The search is that of Wing and Gong (1993), breadth first (Lowe 2017):
// events in the order of time, and with them every state that the key may be in and which of the
// calls under way have happened in it. So its cost grows with the calls that are under way at once,
// not with the length of the history, and it never gives up.
//
// Threads: one. Memory: the heap. Errors: the first return that no order explains, and the calls
// before it, as text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lumen::test {

// A call's effect on its key. kDrop: it is gone, and no caller is told whether it was there
// (clear() for one key). kFill: the value that get_or_compute() stores once it has computed:
// nothing if the key is there.
enum class Call : uint8_t { kPut, kGet, kContains, kErase, kTake, kDrop, kFill };

struct Operation {
  Call call = Call::kGet;
  uint32_t thread = 0;
  uint64_t key = 0;
  uint64_t value = 0;   // put, fill: the value. get, take: the answer; 0: nothing
  bool answer = false;  // put, contains, erase
  uint64_t began = 0;   // stamps: all of one history differ
  uint64_t returned = 0;
  uint64_t asked = 0;      // a fill: when its get_or_compute() began,
  uint64_t computing = 0;  // when the computation did; it was over when the fill began
  bool may_wait = false;   // a get: of get_or_compute(), which may have waited for a computation
};

[[nodiscard]] inline std::string text_of(const Operation& one) {
  const auto number = [](uint64_t value) { return value == 0 ? "nothing" : std::to_string(value); };
  const std::string key = std::to_string(one.key);
  std::string what;
  switch (one.call) {
    case Call::kPut:
      what = "put " + key + " = " + number(one.value) + (one.answer ? "" : ", refused");
      break;
    case Call::kGet: what = "get " + key + " -> " + number(one.value); break;
    case Call::kContains: what = "contains " + key + (one.answer ? " -> yes" : " -> no"); break;
    case Call::kErase: what = "erase " + key + (one.answer ? " -> yes" : " -> no"); break;
    case Call::kTake: what = "take " + key + " -> " + number(one.value); break;
    case Call::kDrop: what = "clear " + key; break;
    case Call::kFill: what = "computed " + key + " = " + number(one.value); break;
  }
  return std::to_string(one.began) + " to " + std::to_string(one.returned) + " thread " +
         std::to_string(one.thread) + ": " + what + "\n";
}

// The history of one key. kEvicts: the map may drop a key at any time.
class KeyHistory {
 public:
  explicit KeyHistory(bool evicts) : evicts_(evicts) {}
  void add(const Operation& one) { operations_.push_back(one); }
  [[nodiscard]] size_t size() const noexcept { return operations_.size(); }

  [[nodiscard]] std::optional<std::string> check() {
    leave_out_those_that_waited();
    struct Event {
      uint64_t stamp;
      size_t operation;
      bool is_return;
    };
    std::vector<Event> events;
    for (size_t i = 0; i < operations_.size(); ++i) {
      events.push_back({operations_[i].began, i, false});
      events.push_back({operations_[i].returned, i, true});
    }
    std::sort(events.begin(), events.end(),
              [](const Event& a, const Event& b) { return a.stamp < b.stamp; });
    std::vector<State> states{{0, 0}};
    std::vector<const Operation*> under_way;
    for (const Event& event : events) {
      const Operation& one = operations_[event.operation];
      if (!event.is_return) {
        under_way.push_back(&one);
        continue;
      }
      // A call happens as late as it may: when one returns, it and any others under way.
      std::vector<State> after = states;
      for (size_t i = 0; i < after.size(); ++i) {
        for (const Operation* next : under_way) happen(*next, after[i], after);
        if (evicts_) add_state(after, {0, after[i].happened});
      }
      // One that was not admitted may be seen until its put returns.
      const bool refused = one.call == Call::kPut && !one.answer;
      std::erase_if(after, [&](const State& state) {
        return !state.has(one) || (refused && state.value == one.value);
      });
      if (after.empty()) return trouble(one, states);
      for (State& state : after) state.happened &= ~bit_of(one);
      states.clear();
      for (const State& state : after) add_state(states, state);
      std::erase(under_way, &one);
    }
    return std::nullopt;
  }

 private:
  struct State {
    uint64_t value;     // 0: not there
    uint64_t happened;  // of the calls under way, a bit a thread
    bool operator==(const State&) const = default;
    [[nodiscard]] bool has(const Operation& one) const noexcept {
      return (happened & bit_of(one)) != 0;
    }
  };
  static uint64_t bit_of(const Operation& one) noexcept { return uint64_t{1} << one.thread; }
  static void add_state(std::vector<State>& states, State one) {
    if (std::find(states.begin(), states.end(), one) == states.end()) states.push_back(one);
  }

  void happen(const Operation& one, State from, std::vector<State>& to) const {
    if (from.has(one)) return;
    const auto then = [&](uint64_t value) { add_state(to, {value, from.happened | bit_of(one)}); };
    const bool there = from.value != 0;
    switch (one.call) {
      case Call::kPut:
        if (one.answer || evicts_) then(one.value);
        break;
      case Call::kGet:
        if (from.value == one.value) then(from.value);
        break;
      case Call::kContains:
        if (there == one.answer) then(from.value);
        break;
      case Call::kErase:
        if (there == one.answer) then(0);
        break;
      case Call::kTake:
        if (from.value == one.value) then(0);
        break;
      case Call::kDrop: then(0); break;
      case Call::kFill:
        if (there) {
          then(from.value);
        } else {
          if (!must_skip(one)) then(one.value);
          if (may_skip(one)) then(0);
        }
    }
  }
  static bool removes(const Operation& one) noexcept {
    return one.call == Call::kErase || one.call == Call::kTake || one.call == Call::kDrop;
  }
  // One that came and went while it was computed keeps it from being stored.
  [[nodiscard]] bool must_skip(const Operation& fill) const {
    return std::any_of(operations_.begin(), operations_.end(), [&](const Operation& other) {
      return removes(other) && other.began > fill.computing && other.returned < fill.began;
    });
  }
  // One that was under way with the call may have come while it computed, or not.
  [[nodiscard]] bool may_skip(const Operation& fill) const {
    return evicts_ ||
           std::any_of(operations_.begin(), operations_.end(), [&](const Operation& other) {
             return removes(other) && other.began < fill.returned && other.returned > fill.asked;
           });
  }
  // A call that waits gets the computed value, for any fate of the key meanwhile.
  void leave_out_those_that_waited() {
    std::vector<Operation> fills;
    for (const Operation& one : operations_) {
      if (one.call == Call::kFill) fills.push_back(one);
    }
    std::erase_if(operations_, [&](const Operation& one) {
      return one.may_wait && std::any_of(fills.begin(), fills.end(), [&](const Operation& fill) {
               return fill.value == one.value && fill.began < one.returned &&
                      fill.returned > one.began;
             });
    });
  }

  [[nodiscard]] std::string trouble(const Operation& one, const std::vector<State>& states) const {
    constexpr size_t kShown = 24;
    std::vector<Operation> before;
    for (const Operation& other : operations_) {
      if (other.began < one.returned) before.push_back(other);
    }
    std::sort(before.begin(), before.end(),
              [](const Operation& a, const Operation& b) { return a.returned < b.returned; });
    const auto last = std::find_if(before.begin(), before.end(), [&](const Operation& other) {
      return other.returned == one.returned;
    });
    const auto first = last - std::min<ptrdiff_t>(last - before.begin(), kShown);
    std::string text =
        "no order of these calls explains " + text_of(one) + "before it the key may have been";
    for (const State& state : states) {
      text += " " + (state.value == 0 ? std::string("absent") : std::to_string(state.value));
    }
    text += "\n";
    for (auto other = first; other != before.end(); ++other) text += text_of(*other);
    return text;
  }

  const bool evicts_;
  std::vector<Operation> operations_;
};

// The first key whose history has no order, if there is one. Each thread has one call under way at
// most.
[[nodiscard]] inline std::optional<std::string> find_contradiction(
    const std::vector<Operation>& history, bool evicts) {
  std::map<uint64_t, KeyHistory> keys;
  for (const Operation& one : history) keys.try_emplace(one.key, evicts).first->second.add(one);
  for (auto& [key, its] : keys) {
    if (auto wrong = its.check()) return wrong;
  }
  return std::nullopt;
}

}  // namespace lumen::test
