// See the header for threads, memory and errors.
#include <lumen/service/response_cache.h>

#include <lumen/base/clock.h>
#include <lumen/models/model_repository.h>

#include "service/answer_store.h"
#include "service/fingerprint.h"
#include "service/flights.h"
#include "service/stored_answer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

namespace lumen::service {
namespace {

// Outputs go into the call's own memory first, where its client can't change them before they are stored. Where that
// has no room they go where the client wants them, and nobody else gets them.
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
struct CacheWork {
  Fingerprint print;
  PrivateFirst reply;
  uint64_t ttl_ns = 0;
  Flights::Flight* flight = nullptr;  // that the call leads
  AnswerStore* store = nullptr;
};

struct ResponseCache::OfModel {
  OfModel(uint64_t number, const models::ResponseCacheOptions& options,
          std::unique_ptr<AnswerStore> answers, size_t calls)
      : generation(number),
        ttl_ns(options.ttl_ms * 1'000'000),
        store(std::move(answers)),
        flights(calls) {}
  const uint64_t generation;
  const uint64_t ttl_ns;
  const std::unique_ptr<AnswerStore> store;
  Flights flights;
};

namespace {

// The lesser of the model's ttl and the request's.
uint64_t ttl_of(const Call& call, uint64_t of_model_ns) noexcept {
  constexpr uint64_t kNsOfAMs = 1'000'000;
  const uint64_t wanted_ms = call.cache_wishes.ttl_ms.value_or(UINT64_MAX);
  return wanted_ms < of_model_ns / kNsOfAMs ? wanted_ms * kNsOfAMs : of_model_ns;
}

// False: no memory for the list; the status says so.
bool take_outputs(Call& call, std::span<const TensorView> outputs) noexcept {
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
bool has_run(const Call& call) noexcept {
  switch (call.infer.status.code()) {
    case Code::kCancelled:
    case Code::kDeadlineExceeded:
    case Code::kOverBudget:
    case Code::kResourceExhausted:
    case Code::kUnavailable: return false;
    default: return true;
  }
}

void mark_answered(Call& call, CacheOutcome outcome, uint64_t begun, uint64_t ended) noexcept {
  call.cache_outcome = outcome;
  call.infer.times.dequeued_ns = begun;
  call.infer.times.inferred_ns = ended;
}

// The outputs stay where they are stored. `slot` is held, and is the call's from now on.
void answer_held(Call& call, OutputsKeeper& keeper, AnswerSlot& slot) noexcept {
  const StoredAnswer& stored = StoredAnswer::at(slot.store->data(slot));
  if (!take_outputs(call, stored.outputs())) return slot.store->let_go(slot);
  call.keeper = &keeper;
  call.kept = &slot;
}

// For those that wait for an answer that could not be stored.
void answer_copied(Call& call, std::span<const TensorView> outputs) noexcept {
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

ResponseCache::OfModel* ResponseCache::of(const Call& call) const noexcept {
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
      models_, [](const auto& one) { return one == nullptr || one->flights.is_empty(); });
}

void ResponseCache::let_go(void* kept) noexcept {
  auto& slot = *static_cast<AnswerSlot*>(kept);
  slot.store->let_go(slot);
}

StepOutcome ResponseCache::before(Call& call) noexcept {
  OfModel* const model = of(call);
  const CacheWishes& wishes = call.cache_wishes;
  if (model == nullptr || wishes.is_off || wishes.has_shared_input) return StepOutcome::kNext;
  const uint64_t begun = now_ns();
  const std::optional<Fingerprint> print = Fingerprint::of(call, model->generation, hash_);
  void* const place = call.scratch->allocate(sizeof(CacheWork), alignof(CacheWork));
  if (!print || place == nullptr) return StepOutcome::kNext;
  call.cache_work =
      ::new (place) CacheWork{.print = *print,
                              .reply = PrivateFirst(*call.scratch, *call.reply_memory),
                              .ttl_ns = ttl_of(call, model->ttl_ns),
                              .store = model->store.get()};
  if (answer(*model, call, begun)) return StepOutcome::kDone;
  return join(*model, call, begun);
}

bool ResponseCache::answer(OfModel& model, Call& call, uint64_t begun) noexcept {
  CacheWork& work = *call.cache_work;
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
  mark_answered(call, CacheOutcome::kHit, begun, ended);
  call.cache_ns = ended - begun;
  return true;
}

StepOutcome ResponseCache::join(OfModel& model, Call& call, uint64_t begun) noexcept {
  CacheWork& work = *call.cache_work;
  if (call.reply_is_shared) call.reply_memory = &work.reply;
  call.cache_outcome = CacheOutcome::kMiss;
  const HashPair key = work.print.pair(call, hash_);
  call.cache_ns = now_ns() - begun;
  const Flights::Joined joined = model.flights.join(key, work.ttl_ns, call);
  if (joined.role == Flights::Role::kWaits) return StepOutcome::kParked;
  work.flight = joined.flight;
  // The call that this one would have waited for may have ended between the two looks. Where the found answer has no
  // room in this call's memory, this call has failed, and the calls that wait for it have not.
  if (joined.role == Flights::Role::kLeads && answer(model, call, begun)) {
    after(call);
    return StepOutcome::kDone;
  }
  return StepOutcome::kNext;
}

bool ResponseCache::abandon(Call& call) noexcept {
  return of(call)->flights.leave(call.cache_node, call);
}

void ResponseCache::after(Call& call) noexcept {
  CacheWork* const work = call.cache_work;
  if (work == nullptr) return;
  OfModel& model = *of(call);
  const bool has_answer = call.infer.status.ok() && !work->reply.went_out();
  if (has_answer) return land(model, call);
  if (work->flight == nullptr) return;
  Flights::Flight& flight = *std::exchange(work->flight, nullptr);
  if (has_run(call)) {
    // Their runs may fail as well: one leader after the other would keep all but one worker idle.
    return model.flights.land(flight, [](Call& waiter) noexcept { resume(waiter); });
  }
  Call* const heir = model.flights.hand_over(flight);
  if (heir == nullptr) return;
  heir->cache_work->flight = &flight;
  resume(*heir);
}

// The leader has its outputs: of its run, which are stored now, or of the store.
void ResponseCache::land(OfModel& model, Call& leader) noexcept {
  CacheWork& work = *leader.cache_work;
  const uint64_t begun = now_ns();
  auto* slot = static_cast<AnswerSlot*>(leader.kept);
  const bool is_stored = slot != nullptr;
  if (!is_stored) {
    uint64_t ttl_ns = work.ttl_ns;
    if (work.flight != nullptr) ttl_ns = std::min(ttl_ns, Flights::least_ttl_ns(*work.flight));
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
  if (work.flight != nullptr) {
    const std::span<const TensorView> outputs = leader.infer.outputs;
    model.flights.land(*std::exchange(work.flight, nullptr), [&](Call& waiter) noexcept {
      const uint64_t now = now_ns();
      mark_answered(waiter, CacheOutcome::kShared, now, now);
      if (slot != nullptr) {
        model.store->hold(*slot);
        answer_held(waiter, *this, *slot);
      } else {
        answer_copied(waiter, outputs);
      }
      complete(waiter);
    });
  }
  if (!is_stored && slot != nullptr) model.store->let_go(*slot);
}

}  // namespace lumen::service
