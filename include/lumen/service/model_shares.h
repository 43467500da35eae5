// ModelShares: how many calls, and how much memory for them, each model may hold of an I/O
// thread's, so that a flood for one leaves room for the others. A model may begin another call
// while it holds no more than kFactor times the free part (dynamic thresholds: Choudhury, Hahne,
// "Dynamic queue length thresholds for multiple traffic classes", 1997): one model alone can take
// all but a fifth, two all but a ninth, and the next one finds room at once. A model that holds
// nothing may always begin.
// Threads: its I/O thread. Memory: at construction. Errors: none.
#pragma once

#include <lumen/base/check.h>
#include <lumen/base/limits.h>
#include <lumen/models/model_repository.h>

#include <cstddef>
#include <vector>

namespace lumen::service {

class ModelShares {
 public:
  // A fifth stays free: the default of max_active_requests is a quarter more than one model's queue
  // and the workers hold, so that a flood still fills its queue and is refused at once.
  static constexpr size_t kFactor = 4;

  explicit ModelShares(size_t most_calls)
      : most_calls_(most_calls), free_calls_(most_calls), held_(limits::kMaxModels) {}

  [[nodiscard]] bool has_free_call() const noexcept { return free_calls_ > 0; }
  // Whether the model has less than its share. Only where others are served, too, there is one.
  [[nodiscard]] bool may_begin(const models::Model& model, size_t free_bytes) const noexcept {
    const Held& held = held_[model.index()];
    if (held.calls == 0) return true;
    return has_call_share(model) && held.bytes <= kFactor * free_bytes;
  }
  [[nodiscard]] bool has_call_share(const models::Model& model) const noexcept {
    const size_t calls = held_[model.index()].calls;
    return calls == 0 || calls <= kFactor * free_calls_;
  }
  // Begins a call that takes none of the bytes. False: the model has its share. `models`: so many
  // are served.
  [[nodiscard]] bool try_begin(const models::Model& model, size_t models) noexcept {
    if (models > 1 && !has_call_share(model)) return false;
    begin(model, 0);
    return true;
  }
  void begin(const models::Model& model, size_t bytes) noexcept {
    LUMEN_DCHECK(free_calls_ > 0);
    --free_calls_;
    ++held_[model.index()].calls;
    held_[model.index()].bytes += bytes;
  }
  [[nodiscard]] bool is_unused() const noexcept { return free_calls_ == most_calls_; }
  // A call that has begun holds less than it did.
  void give_back(const models::Model& model, size_t bytes) noexcept {
    LUMEN_DCHECK(held_[model.index()].bytes >= bytes);
    held_[model.index()].bytes -= bytes;
  }
  void end(const models::Model& model, size_t bytes) noexcept {
    give_back(model, bytes);
    --held_[model.index()].calls;
    ++free_calls_;
  }

 private:
  struct Held {
    size_t calls = 0;
    size_t bytes = 0;
  };
  size_t most_calls_;
  size_t free_calls_;
  std::vector<Held> held_;  // by Model::index()
};

}  // namespace lumen::service
