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

TEST(SequenceConfig, RefusesPartsOfTritonsFormThatWouldChangeAnswers) {
  const auto with = [](const std::string& more) {
    return R"({"sequence_batching": {"state": [{"input_name": "a", "output_name": "b"}], )" + more +
           "}}";
  };
  EXPECT_THAT(refusal(with(R"("iterative_sequence": true)")), HasSubstr("iterative_sequence"));
  EXPECT_THAT(refusal(with(R"("control_input": [{"name": "START"}])")), HasSubstr("control_input"));
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
  EXPECT_THAT(refusal(with_state(R"("initial_state": [{"data_file": "f"}])")),
              HasSubstr("a sequence begins with zeros"));
  EXPECT_THAT(refusal(R"({"sequence_batching": {"max_sequence_idle_microseconds": 5}})"),
              HasSubstr("key \"sequence_batching.state\""));
}

}  // namespace
}  // namespace lumen::models
