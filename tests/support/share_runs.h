// ShareRuns: a step that shares one run among identical calls, of all I/O threads.
// Threads: as Step says; counts by any. Memory: the heap. Errors: a follower without memory for its
// copy of the outputs gets that as its status.
#pragma once

#include <lumen/base/check.h>
#include <lumen/service/dispatcher.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace lumen::service {

// The first of several identical calls runs; those that come meanwhile get its result. If it ends
// for a reason of its own (late, cancelled, refused), the next takes its place.
class ShareRuns final : public Step {
 public:
  // How often it happened.
  std::atomic<uint64_t> parked{0};
  std::atomic<uint64_t> shared{0};     // a follower got its leader's outputs
  std::atomic<uint64_t> failed{0};     // or its leader's failure
  std::atomic<uint64_t> promoted{0};   // or took its leader's place
  std::atomic<uint64_t> abandoned{0};  // or was late or cancelled first

  StepOutcome before(Call& call) noexcept override {
    if (call.sequence.is_said()) return StepOutcome::kNext;  // its answer hangs on a state
    const std::lock_guard lock(mutex_);
    const auto [run, is_first] = runs_.try_emplace(key_of(call));
    if (is_first) {
      run->second.leader = &call;
      return StepOutcome::kNext;
    }
    run->second.followers.push_back(&call);
    ++parked;
    return StepOutcome::kParked;
  }

  void after(Call& leader) noexcept override {
    if (leader.sequence.is_said()) return;
    std::vector<Call*> followers;
    Call* heir = nullptr;
    {
      const std::lock_guard lock(mutex_);
      const auto run = runs_.find(key_of(leader));
      LUMEN_CHECK(run != runs_.end() && run->second.leader == &leader);
      followers = std::move(run->second.followers);
      const Code code = leader.infer.status.code();
      if (code == Code::kOk || code == Code::kInternal || followers.empty()) {
        runs_.erase(run);
      } else {
        heir = followers.front();
        followers.erase(followers.begin());
        run->second = {heir, std::exchange(followers, {})};
      }
    }
    if (heir != nullptr) {
      ++promoted;
      resume(*heir);
    }
    for (Call* follower : followers) {
      ++(leader.infer.status.ok() ? shared : failed);
      copy_outputs(leader, *follower);
      complete(*follower);
    }
  }

  bool abandon(Call& call) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto run = runs_.find(key_of(call));
    if (run == runs_.end() || std::erase(run->second.followers, &call) == 0) return false;
    ++abandoned;
    return true;
  }

  [[nodiscard]] bool is_empty() const {
    const std::lock_guard lock(mutex_);
    return runs_.empty();
  }

 private:
  struct Run {
    Call* leader = nullptr;
    std::vector<Call*> followers;
  };
  using Key = std::pair<const models::Model*, std::string>;

  static Key key_of(const Call& call) {
    const TensorView& input = call.infer.inputs[0];
    return {call.infer.model, {reinterpret_cast<const char*>(input.data), input.byte_size}};
  }

  // The outputs of one call as another's, in that one's own memory.
  static void copy_outputs(const Call& from, Call& to) {
    to.infer.status = from.infer.status;
    if (!to.infer.status.ok()) return;
    const auto outputs = to.scratch->allocate_array<TensorView>(from.infer.outputs.size());
    bool has_room = outputs.size() == from.infer.outputs.size();
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i] = from.infer.outputs[i];
      outputs[i].data =
          static_cast<std::byte*>(to.reply_memory->allocate(outputs[i].byte_size, kCacheLine));
      has_room = has_room && outputs[i].data != nullptr;
      if (has_room) std::memcpy(outputs[i].data, from.infer.outputs[i].data, outputs[i].byte_size);
    }
    to.infer.outputs = outputs;
    if (!has_room) to.infer.status = Status::error(Code::kTooLarge, "no room for a shared reply");
  }

  mutable std::mutex mutex_;
  std::map<Key, Run> runs_;
};

}  // namespace lumen::service
