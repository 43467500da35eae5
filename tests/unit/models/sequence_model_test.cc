// SequenceModel around a model that answers at once, and around one that answers later from another
// thread, as devices do: states are bound where they lie, gathered for packed runs, and written
// beside the old ones.
#include "models/sequence_model.h"

#include <lumen/memory/request_memory.h>
#include <lumen/models/sequence_turn.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace lumen::models {
namespace {

using testing::ElementsAre;

Shape shape_of(std::initializer_list<int64_t> sizes) {
  Shape shape;
  for (const int64_t size : sizes) EXPECT_TRUE(shape.append(size));
  return shape;
}

// Of the instance, for the tests.
struct Behaviour {
  bool is_late = false;
  bool fails = false;
  bool passes_on = false;  // y is h, in its memory
  int64_t growth = 0;      // the new state has so many rows more
  const std::byte* state_was_at = nullptr;
  std::vector<float> states_were{};
};

// Inputs: h, x. Outputs: h_out = h + x, y = 10 h + x. One number a row.
class SumInstance final : public Instance {
 public:
  explicit SumInstance(Behaviour& behaviour) : behaviour_(behaviour) {}
  StartOutcome start(InferRequest& request,
                     void (*done)(InferRequest&) noexcept) noexcept override {
    if (!behaviour_.is_late) {
      answer(request);
      return StartOutcome::kDone;
    }
    thread_ = std::jthread([this, &request, done] {
      answer(request);
      done(request);
    });
    return StartOutcome::kPending;
  }

 private:
  void answer(InferRequest& request) noexcept {
    const TensorView& state = request.inputs[0];
    const auto rows = static_cast<size_t>(request.inputs[1].shape[0]);
    EXPECT_EQ(state.shape[0], static_cast<int64_t>(rows));
    behaviour_.state_was_at = state.data;
    const auto* h = reinterpret_cast<const float*>(state.data);
    const auto* x = reinterpret_cast<const float*>(request.inputs[1].data);
    behaviour_.states_were.assign(h, h + rows);
    if (behaviour_.fails) {
      request.status = Status::error(Code::kInternal, "as the test wants");
      return;
    }
    request.outputs = request.memory->allocate_array<TensorView>(request.outputs_wanted.size());
    for (size_t i = 0; i < request.outputs.size(); ++i) {
      const bool is_state = request.outputs_wanted[i] == 0;
      TensorView& output = request.outputs[i];
      output = request.inputs[1];
      if (is_state) output.shape[0] += behaviour_.growth;
      output.byte_size = static_cast<size_t>(output.shape[0]) * sizeof(float);
      output.data = static_cast<std::byte*>(request.memory->allocate(output.byte_size, 64));
      auto* to = reinterpret_cast<float*>(output.data);
      if (behaviour_.passes_on && !is_state) {
        output = state;
        continue;
      }
      for (size_t row = 0; row < rows; ++row) to[row] = (is_state ? h[row] : 10 * h[row]) + x[row];
    }
    request.times.inferred_ns = 7;
  }
  Behaviour& behaviour_;
  std::jthread thread_;
};

class SumModel final : public LoadedModel {
 public:
  explicit SumModel(Behaviour& behaviour) : behaviour_(behaviour) {
    const Shape rows = shape_of({Shape::kDynamic});
    metadata_.name = "m";
    metadata_.inputs = {{"h", ElementType::kFp32, rows}, {"x", ElementType::kFp32, rows}};
    metadata_.outputs = {{"h_out", ElementType::kFp32, rows}, {"y", ElementType::kFp32, rows}};
    metadata_.ties = {{0, 0, 1, 0}};
  }
  const ModelMetadata& metadata() const noexcept override { return metadata_; }
  Result<std::unique_ptr<Instance>> create_instance(std::span<const uint32_t>) override {
    return std::unique_ptr<Instance>(std::make_unique<SumInstance>(behaviour_));
  }

 private:
  Behaviour& behaviour_;
  ModelMetadata metadata_;
};

std::unique_ptr<LoadedModel> stateful(Behaviour& behaviour) {
  auto model = std::make_unique<SumModel>(behaviour);
  const SequenceOptions options{.states = {{.input = "h", .output = "h_out"}}};
  auto plan = plan_sequences(options, model->metadata());
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return make_sequence_model(std::move(model), std::move(*plan));
}

struct Request {
  explicit Request(std::vector<float> rows) : values(std::move(rows)) {
    view = {.type = ElementType::kFp32,
            .shape = shape_of({static_cast<int64_t>(values.size())}),
            .data = reinterpret_cast<std::byte*>(values.data()),
            .byte_size = values.size() * sizeof(float)};
    infer.inputs = {&view, 1};
    infer.memory = &memory;
    infer.owner = this;
  }
  void run(LoadedModel& model) {
    const Result<std::unique_ptr<Instance>> instance = model.create_instance({});
    ASSERT_TRUE(instance.ok());
    const auto on_done = [](InferRequest& request) noexcept {
      static_cast<Request*>(request.owner)->was_told = true;
    };
    outcome = (*instance)->start(infer, on_done);
  }  // the instance's thread has ended
  std::vector<float> answer() const {
    EXPECT_TRUE(infer.status.ok()) << infer.status.message();
    if (infer.outputs.size() != 1) return {};
    const auto* floats = reinterpret_cast<const float*>(infer.outputs[0].data);
    return {floats, floats + infer.outputs[0].byte_size / sizeof(float)};
  }

  RequestMemory memory = std::move(RequestMemory::create(1 << 20)).value();
  std::vector<float> values;
  TensorView view;
  InferRequest infer;
  StartOutcome outcome{};
  bool was_told = false;
};

// Before a run, and after it.
struct alignas(64) State {
  float value = 0;
  alignas(64) float after = -1;
  SequenceTurn turn{};
  void give_to(InferRequest& request) {
    turn.state = reinterpret_cast<std::byte*>(&value);
    turn.new_state = reinterpret_cast<std::byte*>(&after);
    request.turn = &turn;
  }
};

TEST(SequenceModel, ClientsSeeNeitherInputsNorOutputsOfStates) {
  Behaviour behaviour;
  const auto model = stateful(behaviour);
  const ModelMetadata& metadata = model->metadata();
  ASSERT_EQ(metadata.inputs.size(), 1u);
  EXPECT_EQ(metadata.inputs[0].name, "x");
  ASSERT_EQ(metadata.outputs.size(), 1u);
  EXPECT_EQ(metadata.outputs[0].name, "y");
  EXPECT_TRUE(metadata.ties.empty()) << "of two inputs one is left";
  ASSERT_EQ(metadata.sequences.states.size(), 1u);
  EXPECT_EQ(metadata.sequences.states[0].name, "h");
  EXPECT_EQ(metadata.sequences.state_bytes, 64u);
  EXPECT_TRUE(metadata.sequences.have_rows);
}

TEST(SequenceModel, ARequestReadsItsStateWhereItLiesAndWritesTheNewOneBesideIt) {
  for (const bool is_late : {false, true}) {
    Behaviour behaviour{.is_late = is_late};
    const auto model = stateful(behaviour);
    State state{.value = 5};
    Request request({2});
    state.give_to(request.infer);
    request.run(*model);
    EXPECT_EQ(request.outcome, is_late ? StartOutcome::kPending : StartOutcome::kDone);
    EXPECT_EQ(request.was_told, is_late);
    EXPECT_THAT(request.answer(), ElementsAre(52));
    EXPECT_EQ(state.value, 5);
    EXPECT_EQ(state.after, 7);
    EXPECT_EQ(behaviour.state_was_at, request.infer.turn->state);
    EXPECT_EQ(request.infer.owner, &request);
    EXPECT_EQ(request.infer.inputs.data(), &request.view);
    EXPECT_EQ(request.infer.times.inferred_ns, 7u);
  }
}

TEST(SequenceModel, ARequestOfNoSequenceReadsZeros) {
  Behaviour behaviour;
  const auto model = stateful(behaviour);
  Request request({2, 3, 4});
  request.run(*model);
  EXPECT_THAT(request.answer(), ElementsAre(2, 3, 4));
  EXPECT_THAT(behaviour.states_were, ElementsAre(0, 0, 0));
}

TEST(SequenceModel, APackedRunGathersTheStatesOfItsMembersAndZerosForTheRest) {
  Behaviour behaviour;
  const auto model = stateful(behaviour);
  std::array<State, 2> states{{{.value = 1}, {.value = 2}}};
  std::array<InferRequest, 3> members;
  states[0].give_to(members[0]);
  states[1].give_to(members[1]);  // the third is of no sequence
  const std::array<InferRequest*, 3> listed = {&members[0], &members[1], &members[2]};
  Request request({10, 20, 30, 0});  // the last row fills the run up
  request.infer.members = listed;
  request.run(*model);
  EXPECT_THAT(behaviour.states_were, ElementsAre(1, 2, 0, 0));
  EXPECT_THAT(request.answer(), ElementsAre(20, 40, 30, 0));
  EXPECT_EQ(states[0].after, 11);
  EXPECT_EQ(states[1].after, 22);
}

TEST(SequenceModel, AFailedRunLeavesTheState) {
  for (const bool is_late : {false, true}) {
    Behaviour behaviour{.is_late = is_late, .fails = true};
    const auto model = stateful(behaviour);
    State state{.value = 5};
    Request request({2});
    state.give_to(request.infer);
    request.run(*model);
    EXPECT_EQ(request.infer.status.code(), Code::kInternal);
    EXPECT_EQ(state.after, -1);
  }
}

TEST(SequenceModel, AStateOfAnotherSizeIsAnErrorAndNotKept) {
  Behaviour behaviour{.growth = 1};
  const auto model = stateful(behaviour);
  State state{.value = 5};
  Request request({2});
  state.give_to(request.infer);
  request.run(*model);
  EXPECT_EQ(request.infer.status.code(), Code::kInternal);
  EXPECT_THAT(std::string(request.infer.status.message()),
              testing::HasSubstr("a state of 4 bytes comes back with 8"));
  EXPECT_TRUE(request.infer.outputs.empty());
  EXPECT_EQ(state.after, -1);
}

// The next request of the sequence, or the one after it, writes there while the reply is sent.
TEST(SequenceModel, AStateThatIsPassedOnAsAnOutputIsCopied) {
  Behaviour behaviour{.passes_on = true};
  const auto model = stateful(behaviour);
  State state{.value = 5};
  Request request({2});
  state.give_to(request.infer);
  request.run(*model);
  state.value = state.after = -7;
  EXPECT_THAT(request.answer(), ElementsAre(5));
}

// Over the bus outputs go to memory of the client.
TEST(SequenceModel, OutputsGoToTheirOwnMemoryAndStatesDoNot) {
  Behaviour behaviour;
  const auto model = stateful(behaviour);
  class OfClient final : public Allocator {
   public:
    void* allocate(size_t bytes, size_t) noexcept override {
      asked_for.push_back(bytes);
      return &value;
    }
    std::vector<size_t> asked_for;
    alignas(64) float value = 0;
  } of_client;
  State state{.value = 1};
  Request request({2});
  state.give_to(request.infer);
  request.infer.scratch = &request.memory;
  request.infer.memory = &of_client;
  request.run(*model);
  EXPECT_THAT(request.answer(), ElementsAre(12));
  EXPECT_EQ(request.infer.outputs[0].data, reinterpret_cast<std::byte*>(&of_client.value));
  EXPECT_THAT(of_client.asked_for, ElementsAre(sizeof(float))) << "the output alone";
}

TEST(SequenceModel, ARequestWithoutRoomForItsOutputsLeavesTheState) {
  Behaviour behaviour;
  const auto model = stateful(behaviour);
  class NoRoom final : public Allocator {
   public:
    void* allocate(size_t, size_t) noexcept override { return nullptr; }
  } no_room;
  State state{.value = 1};
  Request request({2});
  state.give_to(request.infer);
  request.infer.scratch = &request.memory;
  request.infer.memory = &no_room;
  request.run(*model);
  EXPECT_EQ(request.infer.status.code(), Code::kTooLarge);
  EXPECT_EQ(state.value, 1);
  EXPECT_EQ(state.after, -1);
}

// --- plans ---------------------------------------------------------------------------------------

ModelMetadata with_states(Shape input, Shape output, ElementType type = ElementType::kFp32) {
  ModelMetadata model;
  model.inputs = {{"x", ElementType::kFp32, shape_of({-1, 4})}, {"s", type, input}};
  model.outputs = {{"y", ElementType::kFp32, shape_of({-1, 4})}, {"s_out", type, output}};
  return model;
}

TEST(SequencePlan, FreeAxesAreOne) {
  const SequenceOptions options{.states = {{.input = "s", .output = "s_out"}}};
  const auto rows = plan_sequences(options, with_states(shape_of({-1, 8}), shape_of({-1, 8})));
  ASSERT_TRUE(rows.ok());
  EXPECT_TRUE(rows->has_rows);
  EXPECT_EQ(rows->states[0].shape, shape_of({1, 8}));
  EXPECT_EQ(rows->states[0].bytes, 32u);
  const auto lstm =
      plan_sequences(options, with_states(shape_of({2, -1, 128}), shape_of({-1, -1, -1})));
  ASSERT_TRUE(lstm.ok());
  EXPECT_FALSE(lstm->has_rows);
  EXPECT_EQ(lstm->states[0].shape, shape_of({2, 1, 128}));
  const auto output_says =
      plan_sequences(options, with_states(shape_of({-1, -1}), shape_of({-1, 6})));
  ASSERT_TRUE(output_says.ok());
  EXPECT_EQ(output_says->states[0].shape, shape_of({1, 6}));
}

TEST(SequencePlan, RefusesStatesThatDoNotFit) {
  const auto refusal = [](const ModelMetadata& model, StateOptions state = {"s", "s_out"},
                          uint32_t most = 1024) {
    const auto plan = plan_sequences({.states = {std::move(state)}, .most = most}, model);
    EXPECT_FALSE(plan.ok());
    return std::string(plan.status().message());
  };
  using testing::HasSubstr;
  const ModelMetadata model = with_states(shape_of({-1, 8}), shape_of({-1, 8}));
  EXPECT_THAT(refusal(model, {"t", "s_out"}), HasSubstr("no input of that name"));
  EXPECT_THAT(refusal(model, {"s", "t"}), HasSubstr("no output of that name"));
  EXPECT_THAT(refusal(with_states(shape_of({-1, 8}), shape_of({-1, 9}))),
              HasSubstr("wanted the same shape and type"));
  EXPECT_THAT(refusal(with_states(shape_of({-1}), shape_of({-1}), ElementType::kBytes)),
              HasSubstr("elements of a fixed size"));
  EXPECT_THAT(refusal(with_states(shape_of({-1, 0}), shape_of({-1, 0}))),
              HasSubstr("no state of a size that can be kept"));
  EXPECT_THAT(refusal(with_states(shape_of({1 << 30, 1 << 30}), shape_of({1 << 30, 1 << 30}))),
              HasSubstr("wanted at most"));
  EXPECT_THAT(refusal(with_states(shape_of({1 << 20, 64}), shape_of({1 << 20, 64})), {"s", "s_out"},
                      1'000'000),
              HasSubstr("key \"sequences.most\""));
  StateOptions stated{.input = "s", .output = "s_out"};
  stated.type = ElementType::kFp16;
  EXPECT_THAT(refusal(model, stated), HasSubstr("and the model takes FP32"));
}

TEST(SequencePlan, AStateOfTritonsFormMayLeaveTheAxisOfRowsOut) {
  StateOptions stated{.input = "s", .output = "s_out"};
  stated.dims = shape_of({8});
  const ModelMetadata model = with_states(shape_of({-1, 8}), shape_of({-1, 8}));
  EXPECT_TRUE(plan_sequences({.states = {stated}}, model).ok());
  stated.dims = shape_of({-1, 8});
  EXPECT_TRUE(plan_sequences({.states = {stated}}, model).ok());
  stated.dims = shape_of({7});
  EXPECT_FALSE(plan_sequences({.states = {stated}}, model).ok());
}

TEST(SequencePlan, AModelOfStatesAloneIsRefused) {
  ModelMetadata model = with_states(shape_of({-1, 8}), shape_of({-1, 8}));
  model.inputs.erase(model.inputs.begin());
  const SequenceOptions options{.states = {{.input = "s", .output = "s_out"}}};
  EXPECT_FALSE(plan_sequences(options, model).ok());
}

}  // namespace
}  // namespace lumen::models
