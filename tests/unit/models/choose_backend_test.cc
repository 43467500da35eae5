// Which backend a model gets: by name, alone, by measuring, and from an earlier start.
#include <lumen/base/clock.h>
#include <lumen/models/load_trials.h>

#include "support/two_backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::models {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class ChooseBackendTest : public TwoBackends {
 protected:
  ChooseBackendTest() {
    files.add_model("m");
    options.budget_ns = 20'000'000;
  }
  const BackendChoice& choose() {
    open();
    return repository->find("m", "")->choice();
  }
  void keep_choices() { options.cache = cache.path() / "deeper" / "choices.json"; }
  static uint64_t starts(const FakeControl& control) {
    return control.starts.load(std::memory_order_relaxed);  // relaxed: nothing runs any more
  }

  TempRepository cache;
};

uint64_t slow_call(uint64_t) { return 300'000; }
uint64_t slow_row(uint64_t rows) { return rows * 100'000; }
uint64_t quick_rows(uint64_t) { return 200'000; }

TEST_F(ChooseBackendTest, TheFasterServesAndSaysTheMeasure) {
  first->cost_ns = slow_call;
  const BackendChoice& choice = choose();
  EXPECT_EQ(choice.backend, "second");
  EXPECT_THAT(choice.why,
              AllOf(HasSubstr("faster: 1 row in"), HasSubstr("16 rows in"), HasSubstr("of first")));
  ASSERT_THAT(choice.tried, SizeIs(2));
  ASSERT_THAT(choice.tried[0].costs, SizeIs(2));
  EXPECT_GE(choice.tried[0].costs[0].ns, slow_call(1));
  EXPECT_FALSE(choice.is_remembered);
}

TEST_F(ChooseBackendTest, AutoPassesOverABackendThatTheMachineDoesNotHave) {
  first->cost_ns = slow_call;
  second->why_not_available = "no such device";
  const BackendChoice& choice = choose();
  EXPECT_EQ(choice.backend, "first");
  EXPECT_EQ(choice.why, "the only backend of this server");
  EXPECT_THAT(choice.tried, IsEmpty());
  EXPECT_EQ(both().description(), "first");
}

TEST_F(ChooseBackendTest, OneThatIsNamedSaysWhyTheMachineDoesNotHaveIt) {
  second->why_not_available = "no such device";
  options.backend = "second";
  open();
  EXPECT_THAT(repository->find("m", "")->reason(), HasSubstr("no such device"));
}

TEST_F(ChooseBackendTest, ADeviceThatComesIsMeasuredThoughAChoiceIsRemembered) {
  keep_choices();
  first->cost_ns = slow_call;
  second->why_not_available = "no such device";
  EXPECT_EQ(choose().backend, "first");
  second->why_not_available.clear();
  const BackendChoice& choice = choose();
  EXPECT_EQ(choice.backend, "second");
  EXPECT_FALSE(choice.is_remembered);
}

TEST_F(ChooseBackendTest, SizesThatArePackedCountAsMuchAsOneRow) {
  first->cost_ns = slow_row;     // one row 100 us, sixteen 1,600
  second->cost_ns = quick_rows;  // 200 us, for any rows
  EXPECT_EQ(choose().backend, "second");
}

TEST_F(ChooseBackendTest, ABackendThatConfigJsonNamesIsNotTried) {
  files.write("m/config.json", R"({"backend": "first"})");
  first->cost_ns = slow_call;
  EXPECT_EQ(choose().backend, "first");
  EXPECT_EQ(starts(*first) + starts(*second), 0u);
  files.write("m/config.json", R"({"backend": "auto"})");
  EXPECT_EQ(choose().backend, "second");
}

TEST_F(ChooseBackendTest, TheOnlyOneThatCanServesAndTheOtherSaysWhyItCannot) {
  second->models_that_fail_to_load = {"m"};
  const BackendChoice& choice = choose();
  EXPECT_EQ(choice.backend, "first");
  EXPECT_THAT(choice.why, HasSubstr("only backend"));
  EXPECT_THAT(choice.tried[0].problem, IsEmpty());
  EXPECT_THAT(choice.tried[1].problem, Not(IsEmpty()));
  EXPECT_EQ(starts(*first), 0u);
}

TEST_F(ChooseBackendTest, ABackendThatCanLoadButNotMakeAnInstanceIsLeftOut) {
  first->models_without_instance = {"m"};
  EXPECT_EQ(choose().backend, "second");
}

// The graph of a fake model's file can't be read, so none of its operators is known.
TEST_F(ChooseBackendTest, ABackendWithATableGetsNoModelThatItIsNotKnownToComputeRightly) {
  static constexpr OperatorRule kRules[] = {{"", "Mul", 7, 20, "FP32", "", "", 0, 0, 2, 1}};
  static constexpr OperatorTable kTable = {
      .made_with = {}, .version = "1", .rules = kRules, .exceptions = {}};
  second->traits.operators = &kTable;
  first->cost_ns = slow_call;
  const BackendChoice& choice = choose();
  EXPECT_EQ(choice.backend, "first");
  EXPECT_THAT(choice.why, AllOf(HasSubstr("computes as ONNX defines it; second was left out"),
                                HasSubstr("in config.json allows it")));
  EXPECT_THAT(choice.operators_not_known, IsEmpty());
}

TEST_F(ChooseBackendTest,
       ABackendThatIsNamedServesAndTheChoiceNamesOperatorsThatItIsNotKnownToCompute) {
  static constexpr OperatorRule kRules[] = {{"", "Mul", 7, 20, "FP32", "", "", 0, 0, 2, 1}};
  static constexpr OperatorTable kTable = {
      .made_with = {}, .version = "1", .rules = kRules, .exceptions = {}};
  second->traits.operators = &kTable;
  files.write("m/config.json", R"({"backend": "second"})");
  const BackendChoice& choice = choose();
  EXPECT_EQ(choice.backend, "second");
  EXPECT_THAT(choice.operators_not_known, SizeIs(1));
}

TEST_F(ChooseBackendTest, WhenNoneCanEachIsHeard) {
  first->models_that_fail_to_load = {"m"};
  second->models_that_fail_to_load = {"m"};
  EXPECT_EQ(choose().backend, "auto");
  EXPECT_THAT(
      repository->find("m", "")->reason(),
      AllOf(HasSubstr("no backend can serve"), HasSubstr("first: "), HasSubstr("second: ")));
}

// Zeros for answers, say: a fast wrong one is never chosen.
TEST_F(ChooseBackendTest, WhereAnswersDifferTheReferenceServesHoweverSlow) {
  second->traits.is_reference = true;
  second->cost_ns = slow_call;
  first->adds["m"] = 2;
  const BackendChoice& choice = choose();
  EXPECT_EQ(choice.backend, "second");
  EXPECT_THAT(choice.why, AllOf(HasSubstr("first was left out: their answers differ: output 'y'"),
                                HasSubstr("by second and first")));
  EXPECT_TRUE(choice.answers_differ);
}

// OpenVINO runs one row and several by different code, and one may be wrong alone.
TEST_F(ChooseBackendTest, AnswersToSeveralRowsAtOnceAreComparedToo) {
  second->traits.is_reference = true;
  second->cost_ns = slow_call;
  first->models_that_sum_rows = {"m"};
  const BackendChoice& choice = choose();
  EXPECT_EQ(choice.backend, "second");
  EXPECT_TRUE(choice.answers_differ);
}

TEST_F(ChooseBackendTest, ThatAnswersDifferIsToldAtTheNextStartToo) {
  keep_choices();
  second->traits.is_reference = true;
  first->adds["m"] = 2;
  const std::string why = choose().why;
  EXPECT_TRUE(choose().is_remembered);
  EXPECT_TRUE(choose().answers_differ);
  EXPECT_EQ(choose().why, why);
}

TEST_F(ChooseBackendTest, AModelForWhichNoInputCanBeMadeUpGoesToTheReference) {
  second->traits.is_reference = true;
  first->inputs[0].type = ElementType::kBytes;
  second->inputs[0].type = ElementType::kBytes;
  const BackendChoice& choice = choose();
  EXPECT_EQ(choice.backend, "second");
  EXPECT_THAT(choice.why, HasSubstr("no input could be made up"));
  EXPECT_FALSE(choice.answers_differ);
}

TEST_F(ChooseBackendTest, ASecondStartRemembersAndMeasuresNothing) {
  keep_choices();
  first->cost_ns = slow_call;
  EXPECT_EQ(choose().backend, "second");
  const uint64_t before = starts(*first) + starts(*second);
  first->cost_ns = nullptr;
  second->cost_ns = slow_call;
  const BackendChoice& choice = choose();
  EXPECT_EQ(choice.backend, "second");
  EXPECT_TRUE(choice.is_remembered);
  EXPECT_THAT(choice.why, HasSubstr("faster: 1 row in"));
  EXPECT_EQ(starts(*first) + starts(*second), before);
}

TEST_F(ChooseBackendTest, AChangedModelIsMeasuredAgain) {
  keep_choices();
  first->cost_ns = slow_call;
  EXPECT_EQ(choose().backend, "second");
  first->cost_ns = nullptr;
  second->cost_ns = slow_call;
  files.write("m/1/model.onnx", "another");
  EXPECT_EQ(choose().backend, "first");
}

TEST_F(ChooseBackendTest, ARememberedBackendThatCannotLoadAnyMoreIsNotInsistedOn) {
  keep_choices();
  first->cost_ns = slow_call;
  EXPECT_EQ(choose().backend, "second");
  second->models_that_fail_to_load = {"m"};
  EXPECT_EQ(choose().backend, "first");
}

TEST_F(ChooseBackendTest, AFileOfChoicesThatIsBrokenIsNoneAndIsWrittenAnew) {
  keep_choices();
  for (const char* broken :
       {"", "{", "[]", R"({"version": 1, "choices": 3})", R"({"version": "x"})"}) {
    cache.write("deeper/choices.json", broken);
    first->cost_ns = slow_call;
    EXPECT_EQ(choose().backend, "second") << broken;
    EXPECT_TRUE(choose().is_remembered) << broken;
  }
}

TEST_F(ChooseBackendTest, AFolderThatCannotBeWrittenCostsTheMeasuringAgainAndNothingElse) {
  options.cache = "/proc/choices.json";
  first->cost_ns = slow_call;
  EXPECT_EQ(choose().backend, "second");
  EXPECT_FALSE(choose().is_remembered);
}

// --- trials in a process of their own ------------------------------------------------------------

// Plays the process, which one backend ends.
class FakeTrials final : public LoadTrials {
 public:
  Status try_in_process(const ModelSource& source, std::string_view backend,
                        const std::atomic<bool>*) override {
    tried.push_back(source.name + " by " + std::string(backend));
    if (backend != deadly) return {};
    return Status::error(Code::kUnavailable, "ended the process, by signal 11");
  }
  void end() noexcept override { ++ends; }

  std::vector<std::string> tried;
  std::string deadly;
  int ends = 0;
};

class LoadTrialsTest : public ChooseBackendTest {
 protected:
  LoadTrialsTest() { options.trials = &trials; }
  FakeTrials trials;
};

TEST_F(LoadTrialsTest, EachBackendIsTriedBeforeTheServerLoadsTheModelWithIt) {
  (void)choose();
  EXPECT_THAT(trials.tried, ElementsAre("m by first", "m by second"));
  EXPECT_EQ(trials.ends, 1) << "once for all models";
}

TEST_F(LoadTrialsTest, ABackendThatEndsTheProcessIsLeftOut) {
  trials.deadly = "first";
  first->cost_ns = nullptr;
  second->cost_ns = slow_call;
  const BackendChoice& choice = choose();
  EXPECT_EQ(choice.backend, "second") << "though it is slower";
  EXPECT_THAT(choice.why, HasSubstr("first was left out: ended the process, by signal 11"));
  EXPECT_EQ(starts(*first), 0u);
}

TEST_F(LoadTrialsTest, TheBackendThatConfigJsonNamesIsTriedTooAndItsEndIsTheReason) {
  files.write("m/config.json", R"({"backend": "first"})");
  files.add_model("other");
  trials.deadly = "first";
  open();
  const Model* model = repository->find("m", "");
  EXPECT_EQ(model->state(), ModelState::kUnavailable);
  EXPECT_THAT(model->reason(), HasSubstr("model 'm': first ended the process, by signal 11"));
  EXPECT_EQ(repository->find("other", "")->state(), ModelState::kReady);
}

TEST_F(LoadTrialsTest, AModelIsTriedOnceWhereChoicesAreKept) {
  keep_choices();
  files.write("m/config.json", R"({"backend": "first"})");
  (void)choose();
  (void)choose();
  EXPECT_THAT(trials.tried, ElementsAre("m by first"));
  files.write("m/config.json", "{}");
  (void)choose();
  EXPECT_THAT(trials.tried, ElementsAre("m by first", "m by second"));
  (void)choose();
  EXPECT_THAT(trials.tried, SizeIs(2)) << "the choice is remembered";
}

TEST_F(LoadTrialsTest, AModelThatEndedTheProcessIsTriedAgainAtTheNextStart) {
  keep_choices();
  files.write("m/config.json", R"({"backend": "first"})");
  trials.deadly = "first";
  open();
  trials.deadly.clear();
  open();
  EXPECT_EQ(repository->find("m", "")->state(), ModelState::kReady);
  EXPECT_THAT(trials.tried, SizeIs(2));
}

TEST_F(LoadTrialsTest, AModelThatIsAddedLaterIsTriedToo) {
  open();
  files.add_model("later");
  ASSERT_TRUE(repository->load("later", "", {}).ok());
  EXPECT_THAT(trials.tried, Contains("later by second"));
  EXPECT_EQ(trials.ends, 2);
}

}  // namespace
}  // namespace lumen::models
