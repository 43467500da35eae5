// The CSV's neighbour: which requests have a line in it, when it is made, and the counts if it
// can't be.
// Threads: one, and "lumen-trace". Memory: files in a folder of the test's own. Errors: by gtest.
#include <lumen/telemetry/trace_log.h>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <vector>

#include "csv.h"
#include "telemetry/csv_line.h"

namespace lumen::telemetry {
namespace {

constexpr size_t kFields = 3;

class TraceparentCsv : public testing::Test {
 protected:
  void open() {
    Result<std::unique_ptr<TraceLog>> opened = TraceLog::open(options);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    log = std::move(*opened);
  }
  void write(uint64_t sequence, bool has_traceparent = true) {
    RequestRecord record = record_number(sequence);
    if (has_traceparent) record.traceparent = traceparent_number(static_cast<uint8_t>(sequence));
    log->write(record);
  }
  std::vector<Row> rows() { return records_in(neighbour, kFields); }

  const TempFolder folder;
  TraceLogOptions options{.path = folder / "requests.csv", .buffer_bytes = 64 * 1024};
  const std::filesystem::path neighbour = folder / "requests.traceparent.csv";
  std::unique_ptr<TraceLog> log;
};

TEST_F(TraceparentCsv, ItsNameIsThatOfTheCsvWithAWordMore) {
  EXPECT_EQ(TraceLog::traceparent_path("/a/b.csv"), "/a/b.traceparent.csv");
  EXPECT_EQ(TraceLog::traceparent_path("/a.b/c"), "/a.b/c.traceparent.csv");
  EXPECT_EQ(TraceLog::traceparent_path("/a/b.c.log"), "/a/b.c.traceparent.csv");
}

TEST_F(TraceparentCsv, ALineIsWrittenAsTheStandardSpellsIt) {
  RequestRecord record = record_number(5);
  record.traceparent = traceparent_number(0xfe);
  set_id(record, "a,b");
  std::string line(detail::kMaxCsvLineBytes, '\0');
  detail::TimestampText time;
  line.resize(
      static_cast<size_t>(detail::write_traceparent_line(record, time, line.data()) - line.data()));
  EXPECT_EQ(line,
            "\"a,b\",2026-11-21T01:43:27.123456Z,"
            "00-a0a1a2a3a4a5a6a7a8a9aaabacadaeaf-0b0c0d0e0f1011fe-01\n");
}

TEST_F(TraceparentCsv, ThereIsNoneBeforeTheFirstRequestOfATrace) {
  open();
  write(1, false);
  ASSERT_TRUE(log->flush());
  EXPECT_FALSE(std::filesystem::exists(neighbour));
  write(2);
  ASSERT_TRUE(log->flush());
  EXPECT_TRUE(whole_file(neighbour).starts_with(std::string(kTraceparentCsvHeader) + "\n"));
  EXPECT_EQ(rows().size(), 1u);
}

TEST_F(TraceparentCsv, ItHasTheRequestsOfTracesAloneAndJoinsWithTheCsvByItsFirstTwoColumns) {
  open();
  for (uint64_t i = 0; i < 100; ++i) write(i, i % 3 == 0);
  log->close();
  const std::vector<Row> requests = records_in(options.path);
  const std::vector<Row> traces = rows();
  ASSERT_EQ(requests.size(), 100u);
  ASSERT_EQ(traces.size(), 34u);
  for (size_t i = 0; i < traces.size(); ++i) {
    EXPECT_EQ(traces[i][0], requests[3 * i][0]);
    EXPECT_EQ(traces[i][1], requests[3 * i][1]);
    EXPECT_TRUE(traces[i][2].starts_with("00-a0a1"));
  }
  EXPECT_EQ(log->counters().written, 100u);
  EXPECT_EQ(log->counters().traceparents_written, 34u);
  EXPECT_EQ(log->counters().traceparents_dropped, 0u);
}

TEST_F(TraceparentCsv, AFileThatIsThereIsGoneOnWithAndHalfALineCutOff) {
  for (uint64_t run = 1; run <= 2; ++run) {
    open();
    write(run);
    log.reset();
    write_file(neighbour, whole_file(neighbour) + "3,2026");
  }
  open();
  write(3);
  log.reset();
  ASSERT_EQ(rows().size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(rows()[i][0], std::to_string(i + 1));
}

TEST_F(TraceparentCsv, ItIsRotatedByItsOwnSize) {
  options.max_bytes = 4096;
  options.keep = 2;
  open();
  for (uint64_t i = 0; i < 200; ++i) write(i);
  log->close();
  uint64_t next = 200;
  for (const char* name :
       {"requests.traceparent.csv", "requests.traceparent.csv.1", "requests.traceparent.csv.2"}) {
    EXPECT_LE(std::filesystem::file_size(folder / name), options.max_bytes);
    const std::vector<Row> part = records_in(folder / name, kFields);
    ASSERT_FALSE(part.empty()) << name;
    next -= part.size();
    for (size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i][0], std::to_string(next + i));
  }
  EXPECT_EQ(log->counters().traceparents_written, 200u);
}

TEST_F(TraceparentCsv, WhereItCannotBeOpenedTheCsvGoesOnAndItIsToldOnceAndTriedAgain) {
  int told = 0;
  options.on_error = [&](const Status& status) {
    ++told;
    EXPECT_NE(status.message().find("not the header"), std::string_view::npos);
    EXPECT_NE(status.message().find("requests.traceparent.csv"), std::string_view::npos);
  };
  write_file(neighbour, "somebody's\n");
  open();
  for (uint64_t round = 0; round < 3; ++round) {
    write(round);
    write(round);
    ASSERT_TRUE(log->flush());
  }
  EXPECT_EQ(told, 1);
  EXPECT_EQ(log->counters().written, 6u);
  EXPECT_EQ(log->counters().dropped, 0u);
  EXPECT_EQ(log->counters().traceparents_dropped, 6u);
  EXPECT_EQ(log->counters().write_errors, 3u);
  EXPECT_EQ(whole_file(neighbour), "somebody's\n");
  std::filesystem::remove(neighbour);
  write(7);
  ASSERT_TRUE(log->flush());
  ASSERT_EQ(rows().size(), 1u);
  EXPECT_EQ(rows()[0][0], "7");
}

TEST_F(TraceparentCsv, ADiskThatTakesNoneOfItIsCountedApartFromTheCsv) {
  open();
  write(0);
  ASSERT_TRUE(log->flush());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  // Lines of the neighbour are shorter: the CSV is full before it is.
  const rlimit limit{.rlim_cur = 1500, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  for (uint64_t i = 1; i < 100; ++i) write(i);
  EXPECT_TRUE(log->flush());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  const TraceLogCounters counters = log->counters();
  EXPECT_EQ(counters.written + counters.dropped, 100u);
  EXPECT_EQ(counters.traceparents_written + counters.traceparents_dropped, 100u);
  EXPECT_GT(counters.traceparents_dropped, 0u);
  EXPECT_GT(counters.traceparents_written, counters.written);
  EXPECT_EQ(records_in(options.path).size(), counters.written);
  EXPECT_EQ(rows().size(), counters.traceparents_written);
}

TEST_F(TraceparentCsv, BesideAPathThatIsNoFileThereIsNone) {
  options.path = "/dev/full";
  open();
  write(0);
  ASSERT_TRUE(log->flush());
  EXPECT_FALSE(std::filesystem::exists("/dev/full.traceparent.csv"));
  EXPECT_EQ(log->counters().traceparents_dropped, 0u);
}

TEST_F(TraceparentCsv, AfterTheEndItIsCountedAsDropped) {
  open();
  log->close();
  write(1);
  EXPECT_EQ(log->counters().traceparents_dropped, 1u);
}

}  // namespace
}  // namespace lumen::telemetry
