// Prometheus text read leniently, and stage means between two looks.
#include <lumen/client/metrics_reader.h>

#include <lumen/telemetry/stages.h>

#include <gtest/gtest.h>

#include <string>

namespace lumen::client {
namespace {

using telemetry::Stage;

constexpr std::string_view kText = R"(# HELP lumen_requests_total heads understood
# TYPE lumen_requests_total counter
lumen_requests_total 42
lumen_inference_total{model="a",version="1"} 10
lumen_inference_total{model="a",version="2"} 5 1700000000000
lumen_inference_total{model="b\"\\\n",version="1"} 7
odd{unclosed="x 3
not_a_number NaNx
no_value
large 1.5e3
positive +4

lumen_stage_duration_seconds_bucket{model="a",version="1",stage="queue",le="+Inf"} 3
lumen_stage_duration_seconds_sum{model="a",version="1",stage="queue"} 3e-05
lumen_stage_duration_seconds_count{model="a",version="1",stage="queue"} 3
lumen_stage_duration_seconds_sum{model="a",version="1",stage="total"} 0.0003
lumen_stage_duration_seconds_count{model="a",version="1",stage="total"} 3
)";

TEST(MetricsText, SumsTheSamplesThatCarryTheLabels) {
  const MetricsText metrics(kText);
  EXPECT_EQ(metrics.sum("lumen_requests_total"), 42);
  EXPECT_EQ(metrics.sum("lumen_inference_total", {{"model", "a"}}), 15);
  EXPECT_EQ(metrics.sum("lumen_inference_total", {{"model", "a"}, {"version", "2"}}), 5);
  EXPECT_EQ(metrics.sum("lumen_inference_total", {{"model", "b\"\\\n"}}), 7);
  EXPECT_EQ(metrics.sum("large"), 1500);
  EXPECT_EQ(metrics.sum("positive"), 4);
}

TEST(MetricsText, TellsAnAbsentSampleFromZero) {
  const MetricsText metrics(kText);
  EXPECT_EQ(metrics.sum("lumen_inference_total", {{"model", "c"}}), std::nullopt);
  EXPECT_EQ(metrics.sum("odd"), std::nullopt);
  EXPECT_EQ(metrics.sum("no_value"), std::nullopt);
  EXPECT_EQ(metrics.sum("lumen_requests"), std::nullopt);
  EXPECT_EQ(MetricsText("").sum("x"), std::nullopt);
  EXPECT_EQ(MetricsText("x 0").sum("x"), 0);
}

TEST(StageMeans, AreTheDifferenceOfTwoLooks) {
  const StageSums before = stage_sums_of_metrics(MetricsText(kText), "a");
  EXPECT_EQ(before.source, StageSums::Source::kMetrics);
  StageSums after = before;
  auto& queue = after.stages[static_cast<size_t>(Stage::kQueue)];
  auto& total = after.stages[static_cast<size_t>(Stage::kTotal)];
  queue.count += 4;
  queue.ns += 8000;
  total.count += 4;
  total.ns += 40'000;
  const StageMeans means = stage_means(before, after);
  EXPECT_EQ(means.us[static_cast<size_t>(Stage::kQueue)], 2.0);
  EXPECT_EQ(means.us[static_cast<size_t>(Stage::kTotal)], 10.0);
  EXPECT_EQ(means.us[static_cast<size_t>(Stage::kParse)], std::nullopt);
  EXPECT_EQ(means.requests, 4);
}

TEST(StageMeans, AreAbsentWhereNothingWasCounted) {
  const StageSums sums = stage_sums_of_metrics(MetricsText(kText), "a");
  EXPECT_EQ(stage_means(sums, sums).source, StageSums::Source::kNone);
  EXPECT_EQ(stage_sums_of_metrics(MetricsText(kText), "other").source, StageSums::Source::kNone);
}

TEST(StageMeans, StartFromZeroWhereAStageAppearsInBetween) {
  const StageSums after = stage_sums_of_metrics(MetricsText(kText), "a");
  const StageMeans means = stage_means({}, after);
  ASSERT_TRUE(means.us[static_cast<size_t>(Stage::kQueue)]);
  EXPECT_NEAR(*means.us[static_cast<size_t>(Stage::kQueue)], 10.0, 1e-9);
}

TEST(StageMeans, AreNotMadeOfTwoDifferentSources) {
  StageSums before = stage_sums_of_metrics(MetricsText(kText), "a");
  before.source = StageSums::Source::kStatistics;
  StageSums after = before;
  after.source = StageSums::Source::kMetrics;
  after.stages[static_cast<size_t>(Stage::kTotal)].count += 1;
  EXPECT_EQ(stage_means(before, after).source, StageSums::Source::kNone);
}

TEST(StageSums, AreReadFromTheProtocolsStatistics) {
  const StageSums sums = stage_sums_of_statistics(R"({"model_stats":[{"name":"m","version":"1",
    "inference_stats":{"success":{"count":2,"ns":3000},"queue":{"count":2,"ns":1000},
    "compute_input":{"count":2,"ns":10},"compute_infer":{"count":2,"ns":500},
    "compute_output":{"count":2,"ns":"x"}}}]})");
  EXPECT_EQ(sums.source, StageSums::Source::kStatistics);
  EXPECT_EQ(sums.stages[static_cast<size_t>(Stage::kTotal)].ns, 3000);
  EXPECT_EQ(sums.stages[static_cast<size_t>(Stage::kInference)].count, 2);
  EXPECT_FALSE(sums.stages[static_cast<size_t>(Stage::kPostprocess)].present);
  EXPECT_FALSE(sums.stages[static_cast<size_t>(Stage::kParse)].present);
}

TEST(StageSums, OfAnythingElseAreNone) {
  for (const char* text : {"", "[]", "{}", R"({"model_stats":[]})", R"({"model_stats":[1]})",
                           R"({"model_stats":{"a":1}})", R"({"model_stats":3})"}) {
    EXPECT_EQ(stage_sums_of_statistics(text).source, StageSums::Source::kNone) << text;
  }
}

}  // namespace
}  // namespace lumen::client
