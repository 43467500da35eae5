// "sequences" of a model's config.json, and the same in Triton's form.
#include "models/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace lumen::models {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Kind = ControlOptions::Kind;

SequenceOptions sequences(std::string_view text) {
  auto parsed = parse_model_config(text, "f");
  EXPECT_TRUE(parsed.ok()) << text << ": " << parsed.status().message();
  return parsed.ok() ? parsed->sequences : SequenceOptions();
}

std::string refusal(std::string_view text) {
  const auto parsed = parse_model_config(text, "f");
  EXPECT_FALSE(parsed.ok()) << text;
  return std::string(parsed.status().message());
}

TEST(SequenceConfig, NamesStatesAndBounds) {
  EXPECT_TRUE(sequences("{}").states.empty());
  const SequenceOptions usual = sequences(
      R"({"sequences": {"states": [{"input": "h", "output": "hn"}, {"input": "c", "output": "cn"}]}})");
  ASSERT_EQ(usual.states.size(), 2u);
  EXPECT_EQ(usual.states[1].input, "c");
  EXPECT_EQ(usual.states[1].output, "cn");
  EXPECT_EQ(usual.idle_ms, 60'000u);
  EXPECT_EQ(usual.most, 1024u);
  const SequenceOptions said = sequences(
      R"({"sequences": {"states": [{"input": "h", "output": "hn"}], "idle_ms": 5, "most": 10000}})");
  EXPECT_EQ(said.idle_ms, 5u);
  EXPECT_EQ(said.most, 10'000u);
}

TEST(SequenceConfig, RefusesWhatItCanNotRead) {
  EXPECT_THAT(refusal(R"({"sequences": 3})"), HasSubstr("key \"sequences\": got 3"));
  EXPECT_THAT(refusal(R"({"sequences": {"most": 3}})"), HasSubstr("wanted the states"));
  EXPECT_THAT(refusal(R"({"sequences": {"states": {}}})"), HasSubstr("sequences.states"));
  EXPECT_THAT(refusal(R"({"sequences": {"states": [{"input": "", "output": "b"}]}})"),
              HasSubstr("key \"sequences.states[0].input\": got \"\""));
  EXPECT_THAT(
      refusal(R"({"sequences": {"states": [{"input": "a", "output": "b", "inptu": "c"}]}})"),
      HasSubstr("did you mean \"input\"?"));
  EXPECT_THAT(refusal(R"({"sequences": {"states": [{"input": "a", "output": "b"}], "mots": 3}})"),
              HasSubstr("did you mean \"most\"?"));
  for (const char* number : {"0", "-1", "1.5", "\"3\"", "86400001"}) {
    const std::string text =
        R"({"sequences": {"states": [{"input": "a", "output": "b"}], "idle_ms": )" +
        std::string(number) + "}}";
    EXPECT_THAT(refusal(text), AllOf(HasSubstr("sequences.idle_ms"), HasSubstr(number)));
  }
}

TEST(SequenceConfig, ReadsTritonsForm) {
  const SequenceOptions read = sequences(R"({"sequence_batching": {
      "direct": {"max_queue_delay_microseconds": "100"},
      "max_sequence_idle_microseconds": "2500001",
      "control_input": [],
      "state": [{"input_name": "INPUT_STATE", "output_name": "OUTPUT_STATE",
                 "data_type": "TYPE_INT32", "dims": [-1, "2"],
                 "initial_state": [{"data_type": "TYPE_INT32", "dims": [1, 2], "zero_data": true,
                                    "name": "initial"}],
                 "use_same_buffer_for_input_output": true}]}})");
  ASSERT_EQ(read.states.size(), 1u);
  EXPECT_EQ(read.states[0].input, "INPUT_STATE");
  EXPECT_EQ(read.states[0].output, "OUTPUT_STATE");
  EXPECT_EQ(read.states[0].type, ElementType::kInt32);
  ASSERT_TRUE(read.states[0].dims);
  EXPECT_EQ((*read.states[0].dims)[1], 2);
  EXPECT_EQ(read.idle_ms, 2501u) << "microseconds, rounded up";
  EXPECT_TRUE(sequences(R"({"sequence_batching": null})").states.empty());
  EXPECT_TRUE(sequences(R"({"sequence_batching": {}})").states.empty());
}

TEST(SequenceConfig, NamesControlsAndTheFileOfAFirstState) {
  const SequenceOptions read = sequences(R"({"sequences": {
      "states": [{"input": "h", "output": "hn", "initial_file": "h0.bin"}],
      "controls": [{"input": "reset", "kind": "start"},
                   {"input": "last", "kind": "end", "values": [false, true]},
                   {"input": "used", "kind": "ready", "values": [-1, 0.5]},
                   {"input": "which", "kind": "id"}]}})");
  EXPECT_EQ(read.states[0].initial_file, "h0.bin");
  ASSERT_EQ(read.controls.size(), 4u);
  EXPECT_EQ(read.controls[0].input, "reset");
  EXPECT_EQ(read.controls[0].kind, Kind::kStart);
  EXPECT_EQ(read.controls[1].kind, Kind::kEnd);
  EXPECT_EQ(read.controls[1].value_if_true, 1);
  EXPECT_EQ(read.controls[2].kind, Kind::kReady);
  EXPECT_EQ(read.controls[2].value_if_false, -1);
  EXPECT_EQ(read.controls[2].value_if_true, 0.5);
  EXPECT_EQ(read.controls[3].kind, Kind::kId);
}

TEST(SequenceConfig, RefusesControlsThatItCanNotRead) {
  const auto with = [](const std::string& control) {
    return R"({"sequences": {"states": [{"input": "a", "output": "b"}], "controls": [)" + control +
           "]}}";
  };
  EXPECT_THAT(refusal(with("")), HasSubstr("a list of 1 to"));
  EXPECT_THAT(refusal(with(R"({"input": "r"})")), HasSubstr("sequences.controls[0]"));
  EXPECT_THAT(refusal(with(R"({"input": "r", "kind": "begin"})")), HasSubstr("\"start\""));
  EXPECT_THAT(refusal(with(R"({"input": "r", "kind": "end", "value": [0, 1]})")),
              HasSubstr("did you mean \"values\"?"));
  for (const char* values : {"[0]", "[0, 1, 2]", "[\"0\", 1]", "1", "{}"}) {
    EXPECT_THAT(
        refusal(with(R"({"input": "r", "kind": "end", "values": )" + std::string(values) + "}")),
        HasSubstr("two numbers, for false and for true"));
  }
  EXPECT_THAT(refusal(with(R"({"input": "r", "kind": "id", "values": [0, 1]})")),
              HasSubstr("none for an id"));
  for (const char* file : {"a/b", "..", ".hidden", ""}) {
    const std::string text =
        R"({"sequences": {"states": [{"input": "a", "output": "b", "initial_file": ")" +
        std::string(file) + "\"}]}}";
    EXPECT_THAT(refusal(text), HasSubstr("sequences.states[0].initial_file"));
  }
}

// As Triton's documentation has it for a model of OpenVINO or ONNX Runtime.
TEST(SequenceConfig, ReadsTritonsControls) {
  const SequenceOptions read = sequences(R"({"sequence_batching": {
      "control_input": [
        {"name": "START", "control": [{"kind": "CONTROL_SEQUENCE_START",
                                       "int32_false_true": [0, 1], "fp32_false_true": [],
                                       "bool_false_true": [], "data_type": "TYPE_INVALID"}]},
        {"name": "READY", "control": [{"kind": "CONTROL_SEQUENCE_READY",
                                       "fp32_false_true": [0, 1]}]},
        {"name": "END", "control": [{"kind": "CONTROL_SEQUENCE_END",
                                     "bool_false_true": [false, true]}]},
        {"name": "CORRID", "control": [{"kind": "CONTROL_SEQUENCE_CORRID",
                                        "data_type": "TYPE_STRING"}]},
        {"name": "ALSO_START", "control": [{"int32_false_true": [2, -3]}]}],
      "state": [{"input_name": "a", "output_name": "b",
                 "initial_state": [{"name": "n", "data_file": "f.bin"}]}]}})");
  ASSERT_EQ(read.controls.size(), 5u);
  EXPECT_EQ(read.controls[0].kind, Kind::kStart);
  EXPECT_EQ(read.controls[0].type, ElementType::kInt32);
  EXPECT_EQ(read.controls[1].kind, Kind::kReady);
  EXPECT_EQ(read.controls[1].type, ElementType::kFp32);
  EXPECT_EQ(read.controls[2].kind, Kind::kEnd);
  EXPECT_EQ(read.controls[2].type, ElementType::kBool);
  EXPECT_EQ(read.controls[3].kind, Kind::kId);
  EXPECT_EQ(read.controls[3].type, ElementType::kBytes);
  EXPECT_EQ(read.controls[4].kind, Kind::kStart);
  EXPECT_EQ(read.controls[4].value_if_true, -3);
  EXPECT_EQ(read.states[0].initial_file, "f.bin");
}

TEST(SequenceConfig, RefusesTritonsControlsThatItCanNotRead) {
  const auto with = [](const std::string& control) {
    return R"({"sequence_batching": {"state": [{"input_name": "a", "output_name": "b"}],
               "control_input": [)" +
           control + "]}}";
  };
  EXPECT_THAT(refusal(with("3")), HasSubstr("control_input[0]"));
  EXPECT_THAT(refusal(with(R"({"name": "S"})")), HasSubstr("control_input[0].control"));
  EXPECT_THAT(refusal(with(R"({"control": [{"int32_false_true": [0, 1]}]})")),
              HasSubstr("control_input[0].name"));
  EXPECT_THAT(refusal(with(R"({"name": "S", "control": [{"kind": "CONTROL_SEQUENCE_START"}]})")),
              HasSubstr("the values for false and true"));
  EXPECT_THAT(refusal(with(R"({"name": "S", "control": [{"kind": "CONTROL_SEQUENCE_PAUSE"}]})")),
              HasSubstr("control[0].kind"));
  EXPECT_THAT(refusal(with(R"({"name": "S", "control": [{"int32_false_true": [0]}]})")),
              HasSubstr("two numbers"));
  EXPECT_THAT(refusal(with(R"({"name": "S", "control": [{"int32_false_true": [0, 1]},
                                                        {"int32_false_true": [0, 1]}]})")),
              HasSubstr("a list of one control"));
}

TEST(SequenceConfig, RefusesPartsOfTritonsFormThatWouldChangeAnswers) {
  const auto with = [](const std::string& more) {
    return R"({"sequence_batching": {"state": [{"input_name": "a", "output_name": "b"}], )" + more +
           "}}";
  };
  EXPECT_THAT(refusal(with(R"("iterative_sequence": true)")), HasSubstr("iterative_sequence"));
  EXPECT_THAT(refusal(with(R"("max_sequence_idle_microseconds": -1)")),
              HasSubstr("microseconds, of at most a day"));
  EXPECT_THAT(refusal(with(R"("oldest": {"max_candidate_sequences": "x"})")),
              HasSubstr("sequence_batching.oldest.max_candidate_sequences"));
  const auto with_state = [](const std::string& more) {
    return R"({"sequence_batching": {"state": [{"input_name": "a", "output_name": "b", )" + more +
           "}]}}";
  };
  EXPECT_THAT(refusal(with_state(R"("data_type": "FP32")")), HasSubstr("\"TYPE_FP32\""));
  EXPECT_THAT(refusal(with_state(R"("dims": ["x"])")), HasSubstr("a list of sizes"));
  EXPECT_THAT(refusal(with_state(R"("use_growable_memory": true)")),
              HasSubstr("state[0].use_growable_memory"));
  EXPECT_THAT(refusal(with_state(R"("initial_state": [{"data_file": "../f"}])")),
              HasSubstr("initial_state.data_file"));
  EXPECT_THAT(refusal(with_state(R"("initial_state": [{"zero_data": true}, {"zero_data": true}])")),
              HasSubstr("begins with the same"));
  EXPECT_THAT(refusal(R"({"sequence_batching": {"max_sequence_idle_microseconds": 5}})"),
              HasSubstr("key \"sequence_batching.state\""));
}

}  // namespace
}  // namespace lumen::models
