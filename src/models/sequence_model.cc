// See the header.
#include "models/sequence_model.h"

#include <lumen/base/limits.h>

#include "models/sequence_inputs.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace lumen::models {
namespace {

constexpr size_t kTensorAlignment = 64;
// The longest of a row: an id's text with its length, in a tensor of its own.
constexpr size_t kMostControlBytes =
    sizeof(uint32_t) + limits::kMaxSequenceIdBytes + kTensorAlignment;

// Where the tensors that clients see stand among those of the model within.
struct Numbers {
  std::vector<uint16_t> inputs;   // by the number that clients see
  std::vector<uint16_t> outputs;  // the same
};

class SequenceInstance final : public Instance {
 public:
  SequenceInstance(std::unique_ptr<Instance> inner, const SequencePlan& plan,
                   const Numbers& numbers, const ModelMetadata& metadata)
      : inner_(std::move(inner)), plan_(plan), numbers_(numbers), metadata_(metadata) {}

  StartOutcome start(InferRequest& request,
                     void (*done)(InferRequest&) noexcept) noexcept override {
    Result<Run*> run = prepare(request, done);
    if (!run.ok()) {
      request.status = run.status();
      return StartOutcome::kDone;
    }
    if (plan_.is_kept_by_model) {
      (*run)->memory_number = inner_->memory_number();
      request.status = check_memory(**run);
      if (!request.status.ok()) {
        (*run)->~Run();
        return StartOutcome::kDone;
      }
    }
    const StartOutcome outcome = inner_->start((*run)->inner, finish_later);
    if (outcome == StartOutcome::kDone) give_back(**run);
    return outcome;
  }
  uint32_t max_in_flight() const noexcept override { return inner_->max_in_flight(); }
  const void* last_bound_input(size_t index) const noexcept override {
    return inner_->last_bound_input(numbers_.inputs[index]);
  }
  uint64_t memory_number() const noexcept override { return inner_->memory_number(); }
  uint64_t times_rebuilt() const noexcept override { return inner_->times_rebuilt(); }

 private:
  // The request with its states, in the memory of the request that it stands for.
  struct Run {
    InferRequest inner;
    InferRequest* request = nullptr;
    void (*done)(InferRequest&) noexcept = nullptr;
    const SequenceInstance* instance = nullptr;
    uint64_t memory_number = 0;  // before its start, where the model keeps the states
  };

  Result<Run*> prepare(InferRequest& request, void (*done)(InferRequest&) noexcept) const noexcept {
    // Not where outputs go: over the bus that is the client's own, which shall not see a state.
    Allocator& memory = request.list_memory();
    const size_t input_count = numbers_.inputs.size() + plan_.states.size() + plan_.controls.size();
    void* const place = memory.allocate(sizeof(Run), alignof(Run));
    const auto inputs = memory.allocate_array<TensorView>(input_count);
    const size_t seen =
        request.outputs_wanted.empty() ? numbers_.outputs.size() : request.outputs_wanted.size();
    const auto outputs = memory.allocate_array<uint16_t>(seen + plan_.states.size());
    if (place == nullptr || inputs.size() != input_count || outputs.empty()) {
      return no_room_for("the list of tensors", input_count * sizeof(TensorView));
    }
    for (size_t i = 0; i < request.inputs.size(); ++i)
      inputs[numbers_.inputs[i]] = request.inputs[i];
    for (size_t i = 0; i < seen; ++i) {
      outputs[i] = numbers_.outputs[request.outputs_wanted.empty() ? i : request.outputs_wanted[i]];
    }
    for (size_t i = 0; i < plan_.states.size(); ++i) {
      outputs[seen + i] = static_cast<uint16_t>(plan_.states[i].output);
    }
    LUMEN_RETURN_IF_ERROR(feed(request, inputs, memory));
    Run* const run =
        ::new (place) Run{.inner = request, .request = &request, .done = done, .instance = this};
    run->inner.inputs = inputs;
    run->inner.outputs_wanted = outputs;
    run->inner.memory = &memory;
    run->inner.members = {};
    run->inner.owner = run;
    return run;
  }

  Status feed(const InferRequest& request, std::span<TensorView> inputs,
              Allocator& memory) const noexcept {
    const auto rows = static_cast<size_t>(std::max<int64_t>(rows_of_run(request), 0));
    const TurnsOfRun turns(request);
    for (const StateTensor& state : plan_.states) {
      Result<TensorView> bound = state_input(plan_, state, turns, rows, memory);
      if (!bound.ok()) return bound.status();
      inputs[state.input] = *bound;
    }
    for (const ControlTensor& control : plan_.controls) {
      Result<TensorView> filled = control_input(control, turns, rows, memory);
      if (!filled.ok()) return filled.status();
      inputs[control.input] = *filled;
    }
    return {};
  }

  // Of a packed run, or of made-up rows, as many as the request has; otherwise one.
  [[nodiscard]] int64_t rows_of_run(const InferRequest& request) const noexcept {
    if (!plan_.has_rows) return 1;
    for (size_t i = 0; i < request.inputs.size(); ++i) {
      const Shape& spec = metadata_.inputs[i].shape;
      if (spec.rank() > 0 && spec[0] < 0) return request.inputs[i].shape[0];
    }
    return 1;
  }

  // The number of the model's memory that holds the state of a sequence, and 1; 0: none does yet.
  static uint64_t number_in(const std::byte* state) noexcept {
    uint64_t number = 0;
    std::memcpy(&number, state, sizeof(number));
    return number;
  }

  [[nodiscard]] Status check_memory(const Run& run) const noexcept {
    const TurnsOfRun turns(*run.request);
    for (size_t row = 0; row < turns.size(); ++row) {
      if (turns[row] == nullptr || turns[row]->starts) continue;
      if (number_in(turns[row]->state) != run.memory_number + 1) return memory_is_lost();
    }
    return {};
  }

  [[nodiscard]] Status memory_is_lost() const noexcept {
    return Status::error(Code::kInvalidArgument,
                         "model '%s' was started again, and has lost the states of its sequences; "
                         "begin this one with sequence_start",
                         metadata_.name.c_str());
  }

  [[nodiscard]] Status note_memory(const Run& run) const noexcept {
    if (inner_->memory_number() != run.memory_number) return memory_is_lost();
    const uint64_t number = run.memory_number + 1;
    const TurnsOfRun turns(*run.request);
    for (size_t row = 0; row < turns.size(); ++row) {
      if (turns[row] != nullptr) std::memcpy(turns[row]->new_state, &number, sizeof(number));
    }
    return {};
  }

  // Each state is checked before the first is written.
  [[nodiscard]] Status keep_states(const InferRequest& inner,
                                   const InferRequest& request) const noexcept {
    const size_t seen = inner.outputs.size() - plan_.states.size();
    const TurnsOfRun turns(request);
    for (size_t i = 0; i < plan_.states.size(); ++i) {
      const StateTensor& state = plan_.states[i];
      const TensorView& before = inner.inputs[state.input];
      const TensorView& after = inner.outputs[seen + i];
      if (after.byte_size != before.byte_size || after.shape != before.shape) {
        return Status::error(Code::kInternal,
                             "model '%s': a state of %zu bytes comes back with %zu, and the one "
                             "before is kept; wanted one size for all requests",
                             metadata_.name.c_str(), before.byte_size, after.byte_size);
      }
    }
    for (size_t i = 0; i < plan_.states.size(); ++i) {
      const StateTensor& state = plan_.states[i];
      const std::byte* const after = inner.outputs[seen + i].data;
      for (size_t row = 0; row < turns.size(); ++row) {
        if (turns[row] == nullptr) continue;
        std::memcpy(turns[row]->new_state + state.offset, after + row * state.bytes, state.bytes);
      }
    }
    return {};
  }

  // Those that clients see, in the memory where outputs go. One that a model passes on from a state
  // lies there, where a later request of the sequence writes.
  [[nodiscard]] Status give_outputs(const InferRequest& inner,
                                    InferRequest& request) const noexcept {
    const std::span<TensorView> seen =
        inner.outputs.first(inner.outputs.size() - plan_.states.size());
    const auto is_of_state = [&](const std::byte* data) {
      return request.turn != nullptr && data >= request.turn->state &&
             data < request.turn->state + plan_.bytes;
    };
    for (TensorView& output : seen) {
      if (request.memory == inner.memory && !is_of_state(output.data)) continue;
      auto* const place =
          static_cast<std::byte*>(request.memory->allocate(output.byte_size, kTensorAlignment));
      if (place == nullptr) return no_room_for("an output", output.byte_size);
      if (output.byte_size > 0) std::memcpy(place, output.data, output.byte_size);
      output.data = place;
    }
    request.outputs = seen;
    return {};
  }

  static void give_back(Run& run) noexcept {
    InferRequest& request = *run.request;
    const SequenceInstance& self = *run.instance;
    request.times = run.inner.times;
    request.status = std::move(run.inner.status);
    if (request.status.ok()) request.status = self.give_outputs(run.inner, request);
    if (request.status.ok()) {
      request.status = self.plan_.is_kept_by_model ? self.note_memory(run)
                                                   : self.keep_states(run.inner, request);
    }
    if (!request.status.ok()) request.outputs = {};
    run.~Run();
  }

  static void finish_later(InferRequest& inner) noexcept {
    Run& run = *static_cast<Run*>(inner.owner);
    InferRequest& request = *run.request;
    const auto done = run.done;
    give_back(run);
    done(request);
  }

  const std::unique_ptr<Instance> inner_;
  const SequencePlan& plan_;
  const Numbers& numbers_;
  const ModelMetadata& metadata_;
};

class SequenceModel final : public LoadedModel {
 public:
  SequenceModel(std::unique_ptr<LoadedModel> inner, SequencePlan plan)
      : inner_(std::move(inner)), plan_(std::move(plan)), metadata_(inner_->metadata()) {
    std::vector<bool> is_fed(metadata_.inputs.size());
    std::vector<bool> is_kept(metadata_.outputs.size());
    for (const StateTensor& state : plan_.states) {
      is_fed[state.input] = true;
      is_kept[state.output] = true;
      metadata_.sequences.states.push_back(metadata_.inputs[state.input]);
      metadata_.sequences.new_states.push_back(metadata_.outputs[state.output]);
    }
    for (const ControlTensor& control : plan_.controls) {
      is_fed[control.input] = true;
      metadata_.sequences.controls.push_back(metadata_.inputs[control.input]);
      if (control.kind == ControlOptions::Kind::kId) metadata_.sequences.id_type = control.type;
    }
    numbers_ = {.inputs = hide(metadata_.inputs, is_fed),
                .outputs = hide(metadata_.outputs, is_kept)};
    std::erase_if(metadata_.ties, [&is_fed](const TiedAxes& tie) {
      return is_fed[tie.input] || is_fed[tie.other_input];
    });
    for (TiedAxes& tie : metadata_.ties) {
      tie.input = number_seen(tie.input);
      tie.other_input = number_seen(tie.other_input);
    }
    metadata_.sequences.state_bytes = plan_.bytes;
    metadata_.sequences.first_states = plan_.first_states;
    metadata_.sequences.have_rows = plan_.has_rows;
    // States before and after, and the elements of controls.
    metadata_.prepared_bytes += 2 * plan_.bytes + plan_.controls.size() * kMostControlBytes;
  }

  const ModelMetadata& metadata() const noexcept override { return metadata_; }

  Result<std::unique_ptr<Instance>> create_instance(
      std::span<const uint32_t> batch_sizes) override {
    Result<std::unique_ptr<Instance>> inner = inner_->create_instance(batch_sizes);
    if (!inner.ok()) return inner;
    return std::unique_ptr<Instance>(
        std::make_unique<SequenceInstance>(std::move(*inner), plan_, numbers_, metadata_));
  }

 private:
  // The numbers of those that are left.
  static std::vector<uint16_t> hide(std::vector<TensorSpec>& specs,
                                    const std::vector<bool>& is_hidden) {
    std::vector<TensorSpec> seen;
    std::vector<uint16_t> numbers;
    for (size_t i = 0; i < specs.size(); ++i) {
      if (is_hidden[i]) continue;
      seen.push_back(std::move(specs[i]));
      numbers.push_back(static_cast<uint16_t>(i));
    }
    specs = std::move(seen);
    return numbers;
  }

  [[nodiscard]] uint16_t number_seen(uint16_t input) const noexcept {
    return static_cast<uint16_t>(std::ranges::find(numbers_.inputs, input) -
                                 numbers_.inputs.begin());
  }

  const std::unique_ptr<LoadedModel> inner_;
  const SequencePlan plan_;
  ModelMetadata metadata_;
  Numbers numbers_;
};

}  // namespace

std::unique_ptr<LoadedModel> make_sequence_model(std::unique_ptr<LoadedModel> inner,
                                                 SequencePlan plan) {
  return std::make_unique<SequenceModel>(std::move(inner), std::move(plan));
}

}  // namespace lumen::models
