// AnswerIndex: which stored answer a key means, for how long, and which goes when there are too
// many: a ChronoCache with the policy that the model's configuration names.
// Threads: any. Memory: all of it when it is made. Errors: false where nothing was put.
#pragma once

#include <lumen/answers/keyed_hash.h>
#include <lumen/models/backend.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace lumen::answers {

struct AnswerSlot;

// An entry of the index. The slot is that answer's as long as it has that generation.
struct AnswerRef {
  AnswerSlot* slot = nullptr;
  uint32_t generation = 0;
  uint32_t weight = 0;  // units of memory
};

// Told of each answer that leaves the index, on the thread that has caused it.
void on_answer_removed(AnswerSlot& slot) noexcept;

class AnswerIndex {
 public:
  virtual ~AnswerIndex() = default;
  [[nodiscard]] virtual std::optional<AnswerRef> get(const Hash128& key) const noexcept = 0;
  // False: the policy has not let it in, or another thread was there: nobody waits for it.
  [[nodiscard]] virtual bool try_put(const Hash128& key, const AnswerRef& answer,
                                     std::chrono::nanoseconds ttl) noexcept = 0;
};

struct AnswerIndexOptions {
  models::CachePolicy policy = models::CachePolicy::kS3Fifo;
  size_t max_weight = 0;
  size_t max_entries = 0;  // follows from the least weight: room is made for so many at once
};
[[nodiscard]] std::unique_ptr<AnswerIndex> make_answer_index(const AnswerIndexOptions& options);

}  // namespace lumen::answers
