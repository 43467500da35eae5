// See the header for threads, memory and errors.
#include <lumen/answers/response_cache.h>

#include <lumen/base/clock.h>
#include <lumen/models/model_repository.h>

#include "answers/answer_store.h"
#include "answers/fingerprint.h"
#include "answers/shared_runs.h"
#include "answers/stored_answer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

namespace lumen::answers {
namespace {

// Outputs go into the call's own memory first, where its client can't change them before they are
// stored. Where that has no room they go where the client wants them, and nobody else gets them.
class PrivateFirst final : public Allocator {
 public:
  PrivateFirst(Allocator& own, Allocator& shared) noexcept : own_(own), shared_(shared) {}
  void* allocate(size_t bytes, size_t alignment) noexcept override {
    if (!went_out_) {
      if (void* const memory = own_.allocate(bytes, alignment); memory != nullptr) return memory;
    }
    went_out_ = true;
    return shared_.allocate(bytes, alignment);
  }
  [[nodiscard]] bool went_out() const noexcept { return went_out_; }

 private:
  Allocator& own_;
  Allocator& shared_;
  bool went_out_ = false;
};

}  // namespace

// Of a call that was not answered from the store; in its scratch memory.
struct CacheWork : service::StepData {
  CacheWork(const Fingerprint& question, const PrivateFirst& memory, uint64_t ttl,
            AnswerStore& answers) noexcept
      : print(question), reply(memory), ttl_ns(ttl), store(&answers) {}

  Fingerprint print;
  PrivateFirst reply;
  uint64_t ttl_ns = 0;
  SharedRuns::Run* run = nullptr;  // that the call leads
  AnswerStore* store = nullptr;
};

namespace {

// The call has passed before() and was not answered there.
CacheWork& work_of(const service::Call& call) noexcept {
  return *static_cast<CacheWork*>(call.cache_data);
}

}  // namespace

struct ResponseCache::OfModel {
  OfModel(uint64_t number, const models::ResponseCacheOptions& options,
          std::unique_ptr<AnswerStore> answers, size_t calls)
      : generation(number),
        ttl_ns(options.ttl_ms * 1'000'000),
        store(std::move(answers)),
        runs(calls) {}
  const uint64_t generation;
  const uint64_t ttl_ns;
  const std::unique_ptr<AnswerStore> store;
  SharedRuns runs;
};

namespace {

// The lesser of the model's ttl and the request's.
uint64_t ttl_of(const service::Call& call, uint64_t of_model_ns) noexcept {
  constexpr uint64_t kNsOfAMs = 1'000'000;
  const uint64_t wanted_ms = call.cache_wishes.ttl_ms.value_or(UINT64_MAX);
  return wanted_ms < of_model_ns / kNsOfAMs ? wanted_ms * kNsOfAMs : of_model_ns;
}

// False: no memory for the list; the status says so.
bool take_outputs(service::Call& call, std::span<const TensorView> outputs) noexcept {
  const std::span<TensorView> list = call.scratch->allocate_array<TensorView>(outputs.size());
  if (list.size() != outputs.size()) {
    call.infer.status = Status::error(
        Code::kTooLarge,
        "the list of outputs does not fit a request's memory; raise --max-body-bytes");
    return false;
  }
  std::ranges::copy(outputs, list.begin());
  call.infer.outputs = list;
  return true;
}

// False: the call was given up before the model ran, for a reason that is its own.
bool has_run(const service::Call& call) noexcept {
  switch (call.infer.status.code()) {
    case Code::kCancelled:
    case Code::kDeadlineExceeded:
    case Code::kOverBudget:
    case Code::kResourceExhausted:
    case Code::kUnavailable: return false;
    default: return true;
  }
}

void mark_answered(service::Call& call, service::CacheOutcome outcome, uint64_t begun,
                   uint64_t ended) noexcept {
  call.cache_outcome = outcome;
  call.infer.times.dequeued_ns = begun;
  call.infer.times.inferred_ns = ended;
}

// The outputs stay where they are stored. `slot` is held, and is the call's from now on.
void answer_held(service::Call& call, service::OutputsKeeper& keeper, AnswerSlot& slot) noexcept {
  const StoredAnswer& stored = StoredAnswer::at(slot.store->data(slot));
  if (!take_outputs(call, stored.outputs())) return slot.store->let_go(slot);
  call.keeper = &keeper;
  call.kept = &slot;
}

// For those that wait for an answer that could not be stored.
void answer_copied(service::Call& call, std::span<const TensorView> outputs) noexcept {
  if (!take_outputs(call, outputs)) return;
  for (TensorView& output : call.infer.outputs) {
    const std::byte* const from = output.data;
    output.data =
        static_cast<std::byte*>(call.reply_memory->allocate(output.byte_size, kCacheLine));
    if (output.data == nullptr) {
      call.infer.outputs = {};
      call.infer.status = Status::error(
          Code::kTooLarge,
          "an output of %zu bytes does not fit a request's memory; raise --max-body-bytes",
          output.byte_size);
      return;
    }
    if (output.byte_size > 0) std::memcpy(output.data, from, output.byte_size);
  }
}

}  // namespace

ResponseCache::ResponseCache(size_t calls) : calls_(calls) {}
ResponseCache::~ResponseCache() = default;

Status ResponseCache::add(const models::Model& model) {
  const models::ResponseCacheOptions& options = model.response_cache();
  if (!options.enable) return {};
  const std::lock_guard lock(mutex_);
  try {
    Result<std::unique_ptr<AnswerStore>> store = AnswerStore::create(options);
    if (!store.ok()) return store.status();
    models_[model.index()] =
        std::make_unique<OfModel>(++generations_, options, std::move(*store), calls_);
  } catch (const std::bad_alloc&) {
    return Status::error(
        Code::kResourceExhausted, "model '%s': no memory for a response cache of %llu bytes",
        model.metadata().name.c_str(), static_cast<unsigned long long>(options.max_bytes));
  }
  return {};
}

void ResponseCache::remove(const models::Model& model) noexcept {
  const std::lock_guard lock(mutex_);
  models_[model.index()] = nullptr;
}

ResponseCache::OfModel* ResponseCache::of(const service::Call& call) const noexcept {
  return models_[call.infer.model->index()].get();
}

std::optional<ResponseCache::Usage> ResponseCache::usage(const models::Model& model) const {
  const std::lock_guard lock(mutex_);
  const OfModel* const one = models_[model.index()].get();
  if (one == nullptr) return std::nullopt;
  return Usage{one->store->bytes_used(), one->store->bytes()};
}

bool ResponseCache::is_idle() const noexcept {
  return std::ranges::all_of(
      models_, [](const auto& one) { return one == nullptr || one->runs.is_empty(); });
}

void ResponseCache::let_go(void* kept) noexcept {
  auto& slot = *static_cast<AnswerSlot*>(kept);
  slot.store->let_go(slot);
}

service::StepOutcome ResponseCache::before(service::Call& call) noexcept {
  OfModel* const model = of(call);
  const service::CacheWishes& wishes = call.cache_wishes;
  if (model == nullptr || wishes.is_off || wishes.has_shared_input)
    return service::StepOutcome::kNext;
  const uint64_t begun = now_ns();
  const std::optional<Fingerprint> print = Fingerprint::of(call, model->generation, hash_);
  void* const place = call.scratch->allocate(sizeof(CacheWork), alignof(CacheWork));
  if (!print || place == nullptr) return service::StepOutcome::kNext;
  call.cache_data = ::new (place) CacheWork(*print, PrivateFirst(*call.scratch, *call.reply_memory),
                                            ttl_of(call, model->ttl_ns), *model->store);
  if (answer(*model, call, begun)) return service::StepOutcome::kDone;
  return join(*model, call, begun);
}

bool ResponseCache::answer(OfModel& model, service::Call& call, uint64_t begun) noexcept {
  CacheWork& work = work_of(call);
  AnswerSlot* const slot = model.store->find(work.print.key());
  if (slot == nullptr) return false;
  const StoredAnswer& stored = StoredAnswer::at(model.store->data(*slot));
  const bool is_too_old = call.cache_wishes.ttl_ms && begun >= stored.stored_ns() + work.ttl_ns;
  if (is_too_old || !stored.answers(call, work.print, hash_)) {
    model.store->let_go(*slot);
    return false;
  }
  answer_held(call, *this, *slot);
  const uint64_t ended = now_ns();
  mark_answered(call, service::CacheOutcome::kHit, begun, ended);
  call.cache_ns = ended - begun;
  return true;
}

service::StepOutcome ResponseCache::join(OfModel& model, service::Call& call,
                                         uint64_t begun) noexcept {
  CacheWork& work = work_of(call);
  if (call.reply_is_shared) call.reply_memory = &work.reply;
  call.cache_outcome = service::CacheOutcome::kMiss;
  const HashPair key = work.print.pair(call, hash_);
  call.cache_ns = now_ns() - begun;
  const SharedRuns::Joined joined = model.runs.join(key, work.ttl_ns, call);
  if (joined.role == SharedRuns::Role::kWaits) return service::StepOutcome::kParked;
  work.run = joined.run;
  // The call that this one would have waited for may have ended between the two looks. Where the
  // found answer has no room in this call's memory, this call has failed, and the calls that wait
  // for it have not.
  if (joined.role == SharedRuns::Role::kLeads && answer(model, call, begun)) {
    after(call);
    return service::StepOutcome::kDone;
  }
  return service::StepOutcome::kNext;
}

bool ResponseCache::abandon(service::Call& call) noexcept {
  return of(call)->runs.leave(call.cache_node, call);
}

void ResponseCache::after(service::Call& call) noexcept {
  if (call.cache_data == nullptr) return;
  CacheWork* const work = &work_of(call);
  OfModel& model = *of(call);
  const bool has_answer = call.infer.status.ok() && !work->reply.went_out();
  if (has_answer) return store_and_share(model, call);
  if (work->run == nullptr) return;
  SharedRuns::Run& run = *std::exchange(work->run, nullptr);
  if (has_run(call)) {
    // Their runs may fail as well: one leader after the other would keep all but one worker idle.
    return model.runs.end_run(run, [](service::Call& waiter) noexcept { service::resume(waiter); });
  }
  service::Call* const heir = model.runs.hand_over(run);
  if (heir == nullptr) return;
  work_of(*heir).run = &run;
  service::resume(*heir);
}

// The leader has its outputs: of its run, which are stored now, or of the store.
void ResponseCache::store_and_share(OfModel& model, service::Call& leader) noexcept {
  CacheWork& work = work_of(leader);
  const uint64_t begun = now_ns();
  auto* slot = static_cast<AnswerSlot*>(leader.kept);
  const bool is_stored = slot != nullptr;
  if (!is_stored) {
    uint64_t ttl_ns = work.ttl_ns;
    if (work.run != nullptr) ttl_ns = std::min(ttl_ns, SharedRuns::least_ttl_ns(*work.run));
    const AnswerStore::Place place =
        model.store->begin_put(work.print.key(), StoredAnswer::bytes_for(leader, work.print),
                               std::chrono::nanoseconds(ttl_ns));
    slot = place.slot;
    leader.was_not_kept = slot == nullptr;
    if (slot != nullptr) {
      StoredAnswer::write(model.store->data(*slot), leader, work.print, hash_, begun);
      model.store->publish(*slot);
    }
    leader.cache_ns += now_ns() - begun;
  }
  if (work.run != nullptr) {
    const std::span<const TensorView> outputs = leader.infer.outputs;
    model.runs.end_run(*std::exchange(work.run, nullptr), [&](service::Call& waiter) noexcept {
      const uint64_t now = now_ns();
      mark_answered(waiter, service::CacheOutcome::kShared, now, now);
      if (slot != nullptr) {
        model.store->hold(*slot);
        answer_held(waiter, *this, *slot);
      } else {
        answer_copied(waiter, outputs);
      }
      service::complete(waiter);
    });
  }
  if (!is_stored && slot != nullptr) model.store->let_go(*slot);
}

}  // namespace lumen::answers
