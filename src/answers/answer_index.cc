// See the header for threads, memory and errors.
#include "answers/answer_index.h"

#include <lumen/cache/chrono_cache.h>
#include <lumen/cache/lfu.h>
#include <lumen/cache/lru.h>
#include <lumen/cache/s3_fifo.h>

#include <new>

namespace lumen::answers {
namespace {

// The keys are hashes under a secret already: nobody can choose two that lie together.
constexpr uint64_t kSeed = 1;
struct LowBits {
  uint64_t operator()(const Hash128& key, uint64_t seed) const noexcept { return key.low ^ seed; }
};
struct ByWeight {
  size_t operator()(const Hash128&, const AnswerRef& answer) const noexcept {
    return answer.weight;
  }
};
struct TellSlot {
  void operator()(const Hash128&, const AnswerRef& answer, cache::Removal) const noexcept {
    on_answer_removed(*answer.slot);
  }
};

template <typename Policy>
class IndexOf final : public AnswerIndex {
 public:
  // One shard: puts come one at a time anyway, and the policy sees all answers; look-ups take no
  // lock.
  explicit IndexOf(const AnswerIndexOptions& options)
      : cache_({.reserve_entries = options.max_entries + 1,
                .max_weight = options.max_weight,
                .shards = 1,
                .seed = kSeed}) {}

  std::optional<AnswerRef> get(const Hash128& key) const noexcept override {
    return cache_.get(key);
  }
  bool try_put(const Hash128& key, const AnswerRef& answer,
               std::chrono::nanoseconds ttl) noexcept override {
    try {
      return cache_.try_put(key, answer, ttl);
    } catch (const std::bad_alloc&) {
      return false;  // room is reserved for all that its bound lets in
    }
  }

 private:
  // The clock of deadlines and of stored_ns(), 13 ns a look more than the time stamp counter, so
  // that a simulation replays to the nanosecond.
  ChronoCache<Hash128, AnswerRef, Policy, cache::HashWith<LowBits>, cache::WeighWith<ByWeight>,
              cache::OnRemoval<TellSlot>, cache::SteadyClock>
      cache_;
};

}  // namespace

std::unique_ptr<AnswerIndex> make_answer_index(const AnswerIndexOptions& options) {
  switch (options.policy) {
    case models::CachePolicy::kLru: return std::make_unique<IndexOf<cache::Lru>>(options);
    case models::CachePolicy::kLfu: return std::make_unique<IndexOf<cache::Lfu>>(options);
    case models::CachePolicy::kS3Fifo: break;
  }
  return std::make_unique<IndexOf<cache::S3Fifo>>(options);
}

}  // namespace lumen::answers
