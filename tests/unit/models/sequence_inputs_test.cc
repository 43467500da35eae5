// The inputs that a server feeds a model of sequences: the states of a run's rows, and the controls
// that tell the model where each stands.
#include "models/sequence_inputs.h"

#include <lumen/memory/request_memory.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::models {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Kind = ControlOptions::Kind;

Shape shape_with(std::initializer_list<int64_t> sizes) {
  Shape shape;
  for (const int64_t size : sizes) EXPECT_TRUE(shape.append(size));
  return shape;
}

// x, a state h of two numbers a row, and inputs of each type that a control may have.
ModelMetadata model() {
  const Shape one_each = shape_with({-1, 1});
  ModelMetadata metadata;
  metadata.inputs = {{"x", ElementType::kFp32, shape_with({-1, 3})},
                     {"h", ElementType::kFp32, shape_with({-1, 2})},
                     {"bool", ElementType::kBool, one_each},
                     {"int32", ElementType::kInt32, one_each},
                     {"fp32", ElementType::kFp32, one_each},
                     {"uint64", ElementType::kUint64, one_each},
                     {"uint32", ElementType::kUint32, shape_with({-1})},
                     {"text", ElementType::kBytes, one_each},
                     {"alone", ElementType::kFp32, shape_with({1})},
                     {"scalar", ElementType::kFp32, Shape{}},
                     {"pair", ElementType::kFp32, shape_with({-1, 2})}};
  metadata.outputs = {{"y", ElementType::kFp32, shape_with({-1, 3})},
                      {"h_out", ElementType::kFp32, shape_with({-1, 2})}};
  return metadata;
}

Result<SequencePlan> plan_with(std::vector<ControlOptions> controls,
                               std::vector<std::byte> initial = {}) {
  StateOptions state{.input = "h", .output = "h_out"};
  if (!initial.empty()) state.initial_file = "h0";
  state.initial = std::move(initial);
  return plan_sequences({.states = {std::move(state)}, .controls = std::move(controls)}, model());
}

std::string refusal(ControlOptions control) {
  const auto plan = plan_with({std::move(control)});
  EXPECT_FALSE(plan.ok());
  return plan.ok() ? "" : std::string(plan.status().message());
}

// Two sequences and a row that fills the run up.
class SequenceInputsTest : public testing::Test {
 protected:
  SequenceInputsTest() {
    turns[0] = {.state = bytes_of(states[0]), .starts = true, .number = 7};
    turns[1] = {.state = bytes_of(states[1]), .ends = true, .number = 0, .text = "b"};
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].turn = &turns[i];
      members[i] = &requests[i];
    }
    packed.members = members;
  }
  static const std::byte* bytes_of(const std::array<float, 2>& state) {
    return reinterpret_cast<const std::byte*>(state.data());
  }
  // Of the control of this name and kind.
  TensorView fill(const char* input, Kind kind, size_t rows = 3, double if_true = 1) {
    const auto plan = plan_with({{.input = input, .kind = kind, .value_if_true = if_true}});
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    auto tensor = control_input(plan->controls[0], TurnsOfRun(packed), rows, memory);
    EXPECT_TRUE(tensor.ok());
    return *tensor;
  }
  template <typename T>
  std::vector<T> values(const TensorView& tensor) {
    std::vector<T> found(tensor.byte_size / sizeof(T));
    std::memcpy(found.data(), tensor.data, tensor.byte_size);
    return found;
  }

  RequestMemory memory = std::move(RequestMemory::create(1 << 16)).value();
  std::array<std::array<float, 2>, 2> states{{{1, 2}, {3, 4}}};
  std::array<SequenceTurn, 2> turns;
  std::array<InferRequest, 2> requests;
  std::array<InferRequest*, 2> members{};
  InferRequest packed;
};

TEST_F(SequenceInputsTest, ControlsTellEachRowWhereItsSequenceStands) {
  EXPECT_THAT(values<uint8_t>(fill("bool", Kind::kStart)), ElementsAre(1, 0, 1))
      << "the last row has the states of a beginning";
  EXPECT_THAT(values<int32_t>(fill("int32", Kind::kEnd, 3, -5)), ElementsAre(0, -5, 0));
  EXPECT_THAT(values<float>(fill("fp32", Kind::kReady, 3, 0.5)), ElementsAre(0.5, 0.5, 0))
      << "the last row is no request";
  EXPECT_EQ(fill("fp32", Kind::kReady).shape, shape_with({3, 1}));
  EXPECT_EQ(fill("alone", Kind::kReady, 1).shape, shape_with({1}));
  EXPECT_EQ(fill("scalar", Kind::kReady, 1).shape, Shape{});
}

TEST_F(SequenceInputsTest, IdsAreNumbersOrTexts) {
  turns[0].number = uint64_t{1} << 40;
  EXPECT_THAT(values<uint64_t>(fill("uint64", Kind::kId)), ElementsAre(uint64_t{1} << 40, 0, 0));
  turns[0].number = 3'000'000'000;
  EXPECT_THAT(values<uint32_t>(fill("uint32", Kind::kId)), ElementsAre(3'000'000'000, 0, 0));
  turns[0].text = "3000000000";
  const TensorView texts = fill("text", Kind::kId);
  const std::string_view expected(
      "\x0a\0\0\0"
      "3000000000"
      "\x01\0\0\0"
      "b"
      "\0\0\0\0",
      23);
  EXPECT_EQ(std::string_view(reinterpret_cast<char*>(texts.data), texts.byte_size), expected);
}

TEST_F(SequenceInputsTest, ARequestOfNoSequenceIsABeginningAndNotReady) {
  const InferRequest warm_up;
  const std::array<std::pair<Kind, int32_t>, 4> expected = {
      {{Kind::kStart, 1}, {Kind::kEnd, 0}, {Kind::kReady, 0}, {Kind::kId, 0}}};
  for (const auto& [kind, value] : expected) {
    const auto plan = plan_with({{.input = "int32", .kind = kind}});
    const auto tensor = control_input(plan->controls[0], TurnsOfRun(warm_up), 2, memory);
    EXPECT_THAT(values<int32_t>(*tensor), ElementsAre(value, value));
  }
}

TEST_F(SequenceInputsTest, RowsOfNoSequenceHaveTheStatesOfABeginning) {
  const std::array<float, 2> first = {8, 9};
  const auto plan = plan_with({}, {bytes_of(first), bytes_of(first) + sizeof(first)});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto tensor = state_input(*plan, plan->states[0], TurnsOfRun(packed), 3, memory);
  EXPECT_THAT(values<float>(*tensor), ElementsAre(1, 2, 3, 4, 8, 9));
}

TEST_F(SequenceInputsTest, ARunWithoutRoomIsRefused) {
  auto small = std::move(RequestMemory::create(1)).value();
  while (small.allocate(64, 64) != nullptr) {
  }
  for (const char* input : {"fp32", "text"}) {
    const auto plan =
        plan_with({{.input = input, .kind = input[0] == 't' ? Kind::kId : Kind::kEnd}});
    const auto tensor = control_input(plan->controls[0], TurnsOfRun(packed), 3, small);
    EXPECT_EQ(tensor.status().code(), Code::kTooLarge);
  }
}

TEST(SequenceControls, AControlOfOneElementForAllRowsKeepsSequencesApart) {
  EXPECT_TRUE(plan_with({{.input = "fp32"}})->has_rows);
  EXPECT_FALSE(plan_with({{.input = "alone"}})->has_rows);
  EXPECT_FALSE(plan_with({{.input = "scalar"}})->has_rows);
}

TEST(SequenceControls, RefusesControlsThatDoNotFitTheModel) {
  EXPECT_THAT(refusal({.input = "strat"}),
              AllOf(HasSubstr("control of input 'strat'"), HasSubstr("no input of that name")));
  EXPECT_THAT(refusal({.input = "pair"}), HasSubstr("one element for each sequence"));
  EXPECT_THAT(refusal({.input = "uint64"}), HasSubstr("BOOL, INT32 or FP32"));
  EXPECT_THAT(refusal({.input = "fp32", .kind = Kind::kId}), HasSubstr("UINT32, INT32 or BYTES"));
  EXPECT_THAT(refusal({.input = "int32", .value_if_true = 0.5}), HasSubstr("0.5"));
  EXPECT_THAT(refusal({.input = "int32", .value_if_true = 3e9}), HasSubstr("3e+09"));
  EXPECT_THAT(refusal({.input = "bool", .value_if_true = 2}), HasSubstr("BOOL"));
  EXPECT_THAT(refusal({.input = "fp32", .value_if_true = 1e300}), HasSubstr("1e+300"));
  EXPECT_THAT(refusal({.input = "fp32", .type = ElementType::kInt32}), HasSubstr("got INT32"));
  const auto twice = plan_with({{.input = "fp32"}, {.input = "fp32", .kind = Kind::kEnd}});
  EXPECT_THAT(std::string(twice.status().message()), HasSubstr("name each once"));
  const auto ids =
      plan_with({{.input = "uint64", .kind = Kind::kId}, {.input = "uint32", .kind = Kind::kId}});
  EXPECT_THAT(std::string(ids.status().message()), HasSubstr("give it to one input"));
  ModelMetadata with_small_state = model();
  with_small_state.outputs.push_back({"fp32_out", ElementType::kFp32, shape_with({-1, 1})});
  const SequenceOptions both{.states = {{.input = "fp32", .output = "fp32_out"}},
                             .controls = {{.input = "fp32"}}};
  const auto of_state = plan_sequences(both, with_small_state);
  EXPECT_THAT(std::string(of_state.status().message()), HasSubstr("name each once"));
}

TEST(SequenceControls, AFileOfStatesOfAnotherSizeIsRefused) {
  const auto plan = plan_with({}, std::vector<std::byte>(7));
  EXPECT_THAT(std::string(plan.status().message()),
              HasSubstr("initial_state/h0 has 7 bytes, wanted the 8 of"));
}

}  // namespace
}  // namespace lumen::models
