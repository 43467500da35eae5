// See the header.
#include "service/ensemble_run.h"

#include <lumen/base/clock.h>
#include <lumen/engine/engine.h>
#include <lumen/models/model_repository.h>
#include <lumen/models/validate.h>

#include "service/refusal.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <new>
#include <optional>

namespace lumen::service {
namespace {

using models::EnsemblePlan;
using models::InferRequest;

// Backends place outputs at such addresses.
constexpr size_t kAlignment = 64;

constexpr uint64_t bit_of(size_t step) noexcept { return uint64_t{1} << step; }

// Calls f with the number of each bit, the lowest first.
template <typename F>
void for_each_bit(uint64_t bits, F f) noexcept {
  for (; bits != 0; bits &= bits - 1) f(static_cast<size_t>(std::countr_zero(bits)));
}

// In memory that nothing destroys by itself. Empty with a count above 0: there is no room.
template <typename T>
std::span<T> make_all(Allocator& memory, size_t count) noexcept {
  void* const place = memory.allocate(count * sizeof(T), alignof(T));
  if (place == nullptr) return {};
  T* const first = static_cast<T*>(place);
  std::uninitialized_value_construct_n(first, count);
  return {first, count};
}

// Of outputs with known sizes, each at its alignment. `rows`: of their first axis where that is
// free. nullopt: they are known to nobody.
std::optional<size_t> bytes_of_outputs(const EnsemblePlan::Step& planned, uint32_t rows) noexcept {
  size_t sum = kAlignment;
  for (const uint16_t index : planned.outputs_wanted) {
    const models::TensorSpec& spec = planned.model->metadata().outputs[index];
    Shape shape = spec.shape;
    if (shape.rank() > 0 && shape[0] == Shape::kDynamic) shape[0] = rows;
    const std::optional<size_t> count = shape.element_count();
    size_t bytes = 0;
    if (!count || __builtin_mul_overflow(*count, element_size(spec.type), &bytes) ||
        __builtin_add_overflow(bytes, kAlignment, &bytes) ||
        __builtin_add_overflow(sum, bytes, &sum)) {
      return std::nullopt;
    }
  }
  return sum;
}

std::span<std::byte> block_of(Allocator& memory, size_t bytes) noexcept {
  void* const block = memory.allocate(bytes, kAlignment);
  return block == nullptr ? std::span<std::byte>()
                          : std::span(static_cast<std::byte*>(block), bytes);
}

}  // namespace

void* BlockAllocator::allocate(size_t bytes, size_t alignment) noexcept {
  void* place = rest_.data();
  size_t room = rest_.size();
  if (std::align(alignment, bytes, place, room) == nullptr) return nullptr;
  rest_ = rest_.last(room - bytes);
  return place;
}

EnsembleRun::EnsembleRun(Call& call, engine::Submitter& submitter, models::CompletionSink& sink,
                         telemetry::CounterWriter& counters) noexcept
    : call_(call),
      plan_(*call.infer.model->ensemble()),
      submitter_(submitter),
      sink_(sink),
      counters_(counters) {}

EnsembleRun* EnsembleRun::create(Call& call, engine::Submitter& submitter,
                                 models::CompletionSink& sink,
                                 telemetry::CounterWriter& counters) noexcept {
  void* const place = call.scratch->allocate(sizeof(EnsembleRun), alignof(EnsembleRun));
  if (place == nullptr) return nullptr;
  auto* const run = ::new (place) EnsembleRun(call, submitter, sink, counters);
  if (run->make_lists()) return run;
  run->~EnsembleRun();
  return nullptr;
}

bool EnsembleRun::make_lists() noexcept {
  Allocator& scratch = *call_.scratch;
  const std::span<const uint16_t> asked = call_.infer.outputs_wanted;
  const size_t output_count = asked.empty() ? plan_.outputs.size() : asked.size();
  tensors_ = scratch.allocate_array<TensorView>(plan_.tensors.size());
  wanted_ = scratch.allocate_array<bool>(plan_.tensors.size());
  outputs_ = scratch.allocate_array<TensorView>(output_count);
  runs_ = scratch.allocate_array<StepRun>(plan_.steps.size());
  if (tensors_.empty() || wanted_.empty() || outputs_.empty() || runs_.empty()) return false;
  const std::span<Step> steps = make_all<Step>(scratch, plan_.steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::vector<uint16_t>& inputs = plan_.steps[i].inputs;
    steps[i].infer.inputs = scratch.allocate_array<TensorView>(inputs.size());
    if (steps[i].infer.inputs.size() < inputs.size()) {
      std::destroy(steps.begin(), steps.end());
      return false;
    }
    steps[i].run = this;
  }
  if (steps.empty()) return false;
  steps_ = steps;
  std::ranges::copy(call_.infer.inputs, tensors_.begin());
  for (size_t i = 0; i < output_count; ++i) {
    const size_t output = asked.empty() ? i : asked[i];
    needed_ |= plan_.needs[output];
    wanted_[plan_.outputs[output]] = true;
  }
  return true;
}

bool EnsembleRun::go_on() noexcept {
  // sync[ensemble.returned]: acquire; a step's outputs and status are there. Release: the owner's
  // message about those before is taken, and the next thread that finds no bit may send one.
  for_each_bit(returned_.exchange(0, std::memory_order_acq_rel), [this](size_t i) { take(i); });
  if (status_.ok()) start_ready();
  return away_ != 0;
}

// By the thread that has run the step, which must not touch the run afterwards: where another bit
// is there already, the call may be answered at once.
void EnsembleRun::returned(const Step& step) noexcept {
  const uint64_t bit = bit_of(static_cast<size_t>(&step - steps_.data()));
  Call& call = call_;
  // sync[ensemble.returned]: release; the step's outputs and status. Acquire: as in go_on()
  if (returned_.fetch_or(bit, std::memory_order_acq_rel) == 0) call.owner->on_returned(call);
}

void EnsembleRun::take(size_t number) noexcept {
  const EnsemblePlan::Step& planned = plan_.steps[number];
  const InferRequest& infer = steps_[number].infer;
  away_ &= ~bit_of(number);
  is_alone_ = false;
  runs_[run_count_++] = {.model = planned.model.get(),
                         .times = infer.times,
                         .code = infer.status.code(),
                         .rows = models::rows_of(infer),
                         .worker = infer.worker,
                         .lane = infer.queue_type};
  const uint64_t took_ns = now_ns() - infer.times.parsed_ns;
  if (!infer.status.ok()) {
    counters_.add_time(planned.model->index(), "failure", took_ns);
    return fail(infer.status);
  }
  counters_.add_time(planned.model->index(), "success", took_ns);
  done_ |= bit_of(number);
  for (size_t i = 0; i < planned.outputs.size(); ++i) {
    tensors_[planned.outputs[i]] = infer.outputs[i];
  }
  models::StageTimes& times = call_.infer.times;
  if (times.dequeued_ns == 0) {
    times.dequeued_ns = infer.times.dequeued_ns;
    times.preprocessed_ns = infer.times.preprocessed_ns;
  }
  times.inferred_ns = std::max(times.inferred_ns, infer.times.inferred_ns);
  call_.infer.worker = infer.worker;
}

uint64_t EnsembleRun::ready_steps() const noexcept {
  uint64_t ready = 0;
  for_each_bit(needed_ & ~started_, [&](size_t i) {
    if ((plan_.steps[i].waits_for & ~done_) == 0) ready |= bit_of(i);
  });
  return ready;
}

void EnsembleRun::start_ready() noexcept {
  if (is_alone_) return;
  const uint64_t ready = ready_steps();
  const bool are_several = std::popcount(ready) + std::popcount(away_) > 1;
  uint64_t without_block = are_several ? 0 : ready;
  if (are_several) {
    for_each_bit(ready, [&](size_t i) {
      if (!status_.ok()) return;
      if (const Status status = gather_inputs(i); !status.ok()) return fail(status);
      if (give_block(i)) {
        start(i, true);
      } else {
        without_block |= bit_of(i);
      }
    });
  }
  if (!status_.ok() || away_ != 0 || without_block == 0) return;
  const auto first = static_cast<size_t>(std::countr_zero(without_block));
  if (const Status status = gather_inputs(first); !status.ok()) return fail(status);
  is_alone_ = true;
  start(first, false);
}

// Tensors of the request were checked when it came, against all the steps that read them.
Status EnsembleRun::gather_inputs(size_t number) noexcept {
  const EnsemblePlan::Step& planned = plan_.steps[number];
  const models::ModelMetadata& metadata = planned.model->metadata();
  const std::span<TensorView> inputs = steps_[number].infer.inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = tensors_[planned.inputs[i]];
    if (planned.inputs[i] < call_.infer.inputs.size()) continue;
    LUMEN_RETURN_IF_ERROR(
        models::check_input(metadata, metadata.inputs[i], inputs[i], metadata.takes_empty_tensors));
  }
  return models::check_ties(metadata, inputs);
}

bool EnsembleRun::is_for_reply(const EnsemblePlan::Step& planned) const noexcept {
  return planned.is_last &&
         std::ranges::all_of(planned.outputs, [this](uint16_t tensor) { return wanted_[tensor]; });
}

bool EnsembleRun::give_block(size_t number) noexcept {
  const EnsemblePlan::Step& planned = plan_.steps[number];
  Step& step = steps_[number];
  if (!planned.has_known_sizes) return false;
  step.infer.model = planned.model.get();
  const uint32_t rows = models::rows_of(step.infer);
  const std::optional<size_t> bytes = rows == 0 ? std::nullopt : bytes_of_outputs(planned, rows);
  if (!bytes) return false;
  const std::span<std::byte> data =
      block_of(is_for_reply(planned) ? *call_.reply_memory : *call_.scratch, *bytes);
  const std::span<std::byte> lists =
      block_of(*call_.scratch, planned.outputs.size() * sizeof(TensorView));
  step.data.use(data);
  step.lists.use(lists);
  return !data.empty() && !lists.empty();
}

void EnsembleRun::start(size_t number, bool has_block) noexcept {
  const EnsemblePlan::Step& planned = plan_.steps[number];
  Step& step = steps_[number];
  const InferRequest& whole = call_.infer;
  InferRequest& infer = step.infer;
  infer.model = planned.model.get();
  infer.outputs_wanted = planned.outputs_wanted;
  infer.memory = is_for_reply(planned) ? call_.reply_memory : call_.scratch;
  infer.scratch = call_.scratch;
  if (has_block) {
    infer.memory = &step.data;
    infer.scratch = &step.lists;
  }
  infer.deadline_ns = whole.deadline_ns;
  infer.waits_for_ever = whole.waits_for_ever;
  infer.priority = whole.priority;
  infer.allocator_type = whole.allocator_type;
  infer.outside_ns = whole.outside_ns;
  infer.cancelled = whole.cancelled;
  infer.times.received_ns = whole.times.received_ns;
  infer.times.parsed_ns = now_ns();
  infer.owner = &step;
  infer.sink = &sink_;
  infer.complete = [](InferRequest& request) noexcept {
    const Step& self = *static_cast<Step*>(request.owner);
    self.run->returned(self);
  };
  submit(number);
}

void EnsembleRun::submit(size_t number) noexcept {
  InferRequest& infer = steps_[number].infer;
  const uint32_t model = infer.model->index();
  started_ |= bit_of(number);
  away_ |= bit_of(number);
  counters_.add(model, "queued");
  const engine::SubmitOutcome outcome = submitter_.submit(infer);
  if (outcome == engine::SubmitOutcome::kAccepted) return;
  counters_.subtract(model, "queued");
  away_ &= ~bit_of(number);
  fail(refusal(outcome, *plan_.steps[number].model));
}

// The first reason counts. Steps that are away end in their own time.
void EnsembleRun::fail(const Status& status) noexcept {
  if (!status_.ok()) return;
  status_ = status;
  cancel();
}

void EnsembleRun::cancel() noexcept {
  for_each_bit(away_, [this](size_t i) { steps_[i].infer.cancelled.set(); });
}

void EnsembleRun::end() noexcept {
  InferRequest& infer = call_.infer;
  infer.status = status_;
  call_.step_runs = runs_.first(run_count_);
  if (status_.ok()) {
    const std::span<const uint16_t> asked = infer.outputs_wanted;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      outputs_[i] = tensors_[plan_.outputs[asked.empty() ? i : asked[i]]];
    }
    infer.outputs = outputs_;
  }
  std::destroy(steps_.begin(), steps_.end());
  this->~EnsembleRun();
}

}  // namespace lumen::service
