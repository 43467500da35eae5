// See the header.
#include "models/sequence_model.h"

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

// Where the tensors that clients see stand among those of the model within.
struct Numbers {
  std::vector<uint16_t> inputs;   // by the number that clients see
  std::vector<uint16_t> outputs;  // the same
};

// The requests of one run: its members, or the one.
class Members {
 public:
  explicit Members(const InferRequest& request) noexcept
      : members_(request.members), alone_(&request) {}
  [[nodiscard]] size_t size() const noexcept { return members_.empty() ? 1 : members_.size(); }
  [[nodiscard]] const InferRequest& operator[](size_t i) const noexcept {
    return members_.empty() ? *alone_ : *members_[i];
  }

 private:
  std::span<InferRequest* const> members_;
  const InferRequest* alone_;
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
    const StartOutcome outcome = inner_->start((*run)->inner, finish_later);
    if (outcome == StartOutcome::kDone) give_back(**run);
    return outcome;
  }
  uint32_t max_in_flight() const noexcept override { return inner_->max_in_flight(); }
  const void* last_bound_input(size_t index) const noexcept override {
    return inner_->last_bound_input(numbers_.inputs[index]);
  }
  uint64_t times_rebuilt() const noexcept override { return inner_->times_rebuilt(); }

 private:
  // The request with its states, in the memory of the request that it stands for.
  struct Run {
    InferRequest inner;
    InferRequest* request = nullptr;
    void (*done)(InferRequest&) noexcept = nullptr;
    const SequenceInstance* instance = nullptr;
  };

  static Status no_room(const char* what, size_t bytes) noexcept {
    return Status::error(Code::kTooLarge,
                         "%s of %zu bytes does not fit a request's memory; raise --max-body-bytes",
                         what, bytes);
  }

  Result<Run*> prepare(InferRequest& request, void (*done)(InferRequest&) noexcept) const noexcept {
    // Not where outputs go: over the bus that is the client's own, which shall not see a state.
    Allocator& memory = request.list_memory();
    const size_t input_count = numbers_.inputs.size() + plan_.states.size();
    void* const place = memory.allocate(sizeof(Run), alignof(Run));
    const auto inputs = memory.allocate_array<TensorView>(input_count);
    const size_t seen =
        request.outputs_wanted.empty() ? numbers_.outputs.size() : request.outputs_wanted.size();
    const auto outputs = memory.allocate_array<uint16_t>(seen + plan_.states.size());
    if (place == nullptr || inputs.size() != input_count || outputs.empty()) {
      return no_room("the list of tensors", input_count * sizeof(TensorView));
    }
    for (size_t i = 0; i < request.inputs.size(); ++i)
      inputs[numbers_.inputs[i]] = request.inputs[i];
    for (size_t i = 0; i < seen; ++i) {
      outputs[i] = numbers_.outputs[request.outputs_wanted.empty() ? i : request.outputs_wanted[i]];
    }
    const int64_t rows = rows_of_run(request);
    for (size_t i = 0; i < plan_.states.size(); ++i) {
      const StateTensor& state = plan_.states[i];
      outputs[seen + i] = static_cast<uint16_t>(state.output);
      Result<TensorView> bound = bind(state, request, rows, memory);
      if (!bound.ok()) return bound.status();
      inputs[state.input] = *bound;
    }
    Run* const run =
        ::new (place) Run{.inner = request, .request = &request, .done = done, .instance = this};
    run->inner.inputs = inputs;
    run->inner.outputs_wanted = outputs;
    run->inner.memory = &memory;
    run->inner.members = {};
    run->inner.owner = run;
    return run;
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

  static Result<TensorView> bind(const StateTensor& state, const InferRequest& request,
                                 int64_t rows, Allocator& memory) noexcept {
    TensorView tensor{.type = state.type, .shape = state.shape, .byte_size = state.bytes};
    const Members members(request);
    if (rows == 1 && members[0].state != nullptr) {
      tensor.data = const_cast<std::byte*>(members[0].state) + state.offset;  // inputs are read
      return tensor;
    }
    const auto count = static_cast<size_t>(std::max<int64_t>(rows, 0));
    if (rows != 1) tensor.shape[0] = rows;
    tensor.byte_size = state.bytes * count;
    tensor.data = static_cast<std::byte*>(memory.allocate(tensor.byte_size, kTensorAlignment));
    if (tensor.data == nullptr) return no_room("the states of a run", tensor.byte_size);
    for (size_t row = 0; row < count; ++row) {
      std::byte* const to = tensor.data + row * state.bytes;
      const std::byte* const from = row < members.size() ? members[row].state : nullptr;
      if (from != nullptr) {
        std::memcpy(to, from + state.offset, state.bytes);
      } else {
        std::memset(to, 0, state.bytes);
      }
    }
    return tensor;
  }

  // Each state is checked before the first is written.
  [[nodiscard]] Status keep_states(const InferRequest& inner,
                                   const InferRequest& request) const noexcept {
    const size_t seen = inner.outputs.size() - plan_.states.size();
    const Members members(request);
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
      for (size_t row = 0; row < members.size(); ++row) {
        std::byte* const to = members[row].new_state;
        if (to != nullptr) std::memcpy(to + state.offset, after + row * state.bytes, state.bytes);
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
      return request.state != nullptr && data >= request.state &&
             data < request.state + plan_.bytes;
    };
    for (TensorView& output : seen) {
      if (request.memory == inner.memory && !is_of_state(output.data)) continue;
      auto* const place =
          static_cast<std::byte*>(request.memory->allocate(output.byte_size, kTensorAlignment));
      if (place == nullptr) return no_room("an output", output.byte_size);
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
    if (request.status.ok()) request.status = self.keep_states(run.inner, request);
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
    std::vector<bool> is_state_input(metadata_.inputs.size());
    std::vector<bool> is_state_output(metadata_.outputs.size());
    for (const StateTensor& state : plan_.states) {
      is_state_input[state.input] = true;
      is_state_output[state.output] = true;
    }
    for (const StateTensor& state : plan_.states) {
      metadata_.states.push_back(metadata_.inputs[state.input]);
    }
    numbers_ = {.inputs = hide(metadata_.inputs, is_state_input),
                .outputs = hide(metadata_.outputs, is_state_output)};
    std::erase_if(metadata_.ties, [&is_state_input](const TiedAxes& tie) {
      return is_state_input[tie.input] || is_state_input[tie.other_input];
    });
    for (TiedAxes& tie : metadata_.ties) {
      tie.input = number_seen(tie.input);
      tie.other_input = number_seen(tie.other_input);
    }
    metadata_.state_bytes = plan_.bytes;
    metadata_.states_have_rows = plan_.has_rows;
    metadata_.prepared_bytes += 2 * plan_.bytes;  // before and after
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
                                    const std::vector<bool>& is_state) {
    std::vector<TensorSpec> seen;
    std::vector<uint16_t> numbers;
    for (size_t i = 0; i < specs.size(); ++i) {
      if (is_state[i]) continue;
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
