// The output of `lumen bench URL` for given counts.
#include <lumen/client/bench_report.h>

#include <lumen/telemetry/stages.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>

namespace lumen::client {
namespace {

BenchHead head() {
  BenchHead result;
  // A literal of one character assigned: gcc 12 sees an overlap that isn't there (PR 105329).
  result.model = std::string("m");
  result.inputs = "x FP32[1,3]";
  result.plan.target.url = "http://h:1";
  result.plan.request = std::string(100, 'x');
  return result;
}

BenchRow row() {
  BenchRow result;
  result.clients = 4;
  result.tally = std::make_unique<Tally>();
  result.tally->by_status[200] = 2;
  result.tally->latency.record(40'000);
  result.tally->latency.record(60'000);
  result.tally->connect.record(7'000);
  result.tally->seconds = 0.5;
  result.tally->per_second = 4;
  return result;
}

TEST(BenchReport, ShowsTheServersTotalBesideTheClientsMean) {
  BenchRow one = row();
  one.server.source = StageSums::Source::kMetrics;
  one.server.us[static_cast<size_t>(telemetry::Stage::kQueue)] = 2;
  one.server.us[static_cast<size_t>(telemetry::Stage::kTotal)] = 30;
  const std::string text = row_text(head(), one);
  EXPECT_NE(text.find("queue 2.0"), std::string::npos) << text;
  EXPECT_NE(text.find("50.0 µs here = 30.0 in the server + 20.0 outside it"), std::string::npos)
      << text;
  EXPECT_EQ(to_json(head(),
                    [&] {
                      std::vector<BenchRow> rows;
                      rows.push_back(std::move(one));
                      return rows;
                    }())["rows"][0]["server"]["outside_us"],
            20.0);
}

TEST(BenchReport, SaysNothingOfAServerThatTellsNothing) {
  const std::string text = row_text(head(), row());
  EXPECT_EQ(text.find("server"), std::string::npos) << text;
  EXPECT_NE(text.find(" none\n"), std::string::npos) << text;
}

TEST(BenchReport, ListsErrorsByKind) {
  BenchRow one = row();
  one.tally->by_status[503] = 12;
  one.tally->failures[static_cast<size_t>(Failure::kTimeout)] = 3;
  one.tally->first_error = "HTTP/1.1 503";
  EXPECT_EQ(errors_text(*one.tally), "503 x 12, timeout x 3");
  EXPECT_NE(row_text(head(), one).find("first error: HTTP/1.1 503"), std::string::npos);
}

TEST(BenchReport, SaysWhenTheClientItselfIsTheBottleneck) {
  BenchRow one = row();
  one.tally->busiest_cpu = 0.89;
  EXPECT_FALSE(is_client_bound(head().plan, *one.tally));
  one.tally->busiest_cpu = 0.91;
  EXPECT_TRUE(is_client_bound(head().plan, *one.tally));
  EXPECT_NE(row_text(head(), one).find("THE CLIENT IS THE BOTTLENECK"), std::string::npos);
}

TEST(BenchReport, JudgesAPollingClientByItsEmptyPolls) {
  BenchHead polling = head();
  polling.plan.poll = true;
  BenchRow one = row();
  one.tally->busiest_cpu = 1;
  one.tally->fewest_empty_polls = 0.5;
  EXPECT_FALSE(is_client_bound(polling.plan, *one.tally));
  one.tally->fewest_empty_polls = 0.05;
  EXPECT_TRUE(is_client_bound(polling.plan, *one.tally));
}

TEST(BenchReport, GivesEveryCsvRowAsManyFieldsAsTheHead) {
  const std::string fields = csv_head();
  const std::string values = csv_row(head(), row());
  EXPECT_EQ(std::ranges::count(fields, ','), std::ranges::count(values, ','));
  EXPECT_TRUE(values.starts_with("m,http://h:1,4,1,"));
  EXPECT_TRUE(values.ends_with("\n"));
}

TEST(BenchReport, PutsUnsentRequestsIntoWords) {
  BenchHead open = head();
  open.plan.rate = 1000;
  BenchRow one = row();
  one.tally->unsent = 9;
  const std::string text = row_text(open, one);
  EXPECT_NE(text.find("9 requests were due and never left"), std::string::npos) << text;
}

TEST(Tally, AddsUpTheCountsOfThreads) {
  Tally sum;
  const BenchRow one = row();
  sum.merge(*one.tally);
  sum.merge(*one.tally);
  EXPECT_EQ(sum.ok_count(), 4u);
  EXPECT_EQ(sum.latency.count(), 4u);
  EXPECT_EQ(sum.per_second, 8);
  EXPECT_EQ(sum.seconds, 0.5);
}

}  // namespace
}  // namespace lumen::client
