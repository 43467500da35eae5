// One record as one line: every field, quoted and empty ones, and the longest line there is.
// Threads: one. Memory: strings. Errors: by gtest.
#include "telemetry/csv_line.h"

#include <lumen/telemetry/trace_log.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>

#include "csv.h"
#include "telemetry/decimal.h"

namespace lumen::telemetry {
namespace {

using detail::CsvNames;

std::string line_of(const RequestRecord& record, const CsvNames& names = {}) {
  std::string text(detail::kMaxCsvLineBytes, '\0');
  detail::TimestampText time;
  const char* end = detail::write_csv_line(record, names, time, text.data());
  text.resize(static_cast<size_t>(end - text.data()));
  return text;
}

TEST(CsvLine, TheHeaderNamesAFieldForEachOfTheLine) {
  const std::vector<Row> rows = parse_csv(std::string(kTraceCsvHeader) + "\n");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].size(), kTraceFields);
  for (size_t i = 0; i < kStageCount; ++i) {
    EXPECT_EQ(rows[0][6 + i], std::string(kStageNames[i]) + "_us");
  }
}

TEST(CsvLine, EveryFieldStandsInItsColumn) {
  RequestRecord record = record_number(42);
  record.stage_ns = {1, 999, 1'000, 1'001, 20'050, 300'000, 4'000'000'007, 5'000'000'000'000};
  record.rows = 8;
  record.model = 1;
  record.worker = 3;
  record.status = 504;
  record.queue_type = 2;
  record.lane = 1;
  record.allocator_type = 0;
  record.cache_use = CacheUse::kMiss;
  record.transport = TransportKind::kGrpc;
  const CsvNames names{{"a", "squeezenet"}, {"mpmc", "inline", "auto"}, {"lumen_arena"}};
  EXPECT_EQ(line_of(record, names),
            "42,2026-11-21T01:43:27.123456Z,squeezenet,auto,lumen_arena,3,0.001,0.999,1.000,1.001,"
            "20.050,300.000,4000000.007,5000000000.000,8,504,miss,grpc,inline\n");
}

TEST(CsvLine, AStageThatDidNotHappenIsEmpty) {
  RequestRecord record;
  record.model = record.worker = RequestRecord::kNone;
  record.status = 400;
  EXPECT_EQ(line_of(record), "0,1970-01-01T00:00:00.000000Z,,,,,,,,,,,,,0,400,,http,\n");
}

TEST(CsvLine, NumbersAreAsPrintfHasThem) {
  std::array<char, 32> ours{};
  std::array<char, 32> theirs{};
  const auto expect = [&](uint64_t value) {
    *detail::put_number(ours.data(), value) = '\0';
    std::snprintf(theirs.data(), theirs.size(), "%llu", static_cast<unsigned long long>(value));
    ASSERT_STREQ(ours.data(), theirs.data());
  };
  for (uint64_t value = 0; value < 1'100'000; ++value) expect(value);
  for (uint64_t power = 1'000'000; power < UINT64_MAX / 10; power *= 10) {
    expect(power - 1);
    expect(power);
  }
  expect(UINT64_MAX);
}

TEST(CsvLine, ATimeDoesNotDependOnTheOneBefore) {
  constexpr int64_t kSecond = 1'000'000'000;
  detail::TimestampText reused;
  for (const int64_t ns :
       {kSecond - 1, kSecond, kSecond + 1000, kSecond - 1, int64_t{0}, int64_t{-1}, int64_t{-1000},
        -kSecond, 1'763'689'407'123'456'789, 1'763'689'407'999'999'999, 951'782'400 * kSecond}) {
    std::array<char, 32> text{};
    std::array<char, 32> wanted{};
    detail::TimestampText fresh;
    EXPECT_EQ(reused.put(text.data(), ns) - text.data(), detail::TimestampText::kBytes);
    (void)fresh.put(wanted.data(), ns);
    EXPECT_STREQ(text.data(), wanted.data()) << ns;
  }
  std::array<char, 32> text{};
  (void)reused.put(text.data(), -1);
  EXPECT_STREQ(text.data(), "1969-12-31T23:59:59.999999Z");
  (void)reused.put(text.data(), 951'782'400 * kSecond);
  EXPECT_STREQ(text.data(), "2000-02-29T00:00:00.000000Z");
}

TEST(CsvLine, AClientsIdTakesThePlaceOfTheNumber) {
  RequestRecord record = record_number(7);
  set_id(record, "order-66");
  EXPECT_EQ(parse_csv(line_of(record))[0][0], "order-66");
}

TEST(CsvLine, AnIdWithQuotesCommasOrLineEndsComesBackAsItWas) {
  for (const std::string_view id :
       {"a,b", "say \"hi\"", "two\nlines", "cr\rhere", "\"", "1=1", " spaces ", "\xc3\xa9"}) {
    RequestRecord record = record_number(7);
    set_id(record, id);
    const std::vector<Row> rows = parse_csv(line_of(record));
    ASSERT_EQ(rows.size(), 1u) << id;
    ASSERT_EQ(rows[0].size(), kTraceFields) << id;
    EXPECT_EQ(rows[0][0], id);
  }
}

TEST(CsvLine, APlainIdIsNotQuoted) {
  RequestRecord record = record_number(7);
  set_id(record, "a= b;c'");
  EXPECT_TRUE(line_of(record).starts_with("a= b;c',"));
}

// A spreadsheet would run it as a formula that a client has chosen.
TEST(CsvLine, AnIdThatIsAFormulaIsTakenAsText) {
  for (const std::string_view id : {"=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "=\"a,b\""}) {
    RequestRecord record = record_number(7);
    set_id(record, id);
    EXPECT_EQ(parse_csv(line_of(record)).at(0).at(0), "'" + std::string(id));
  }
}

TEST(CsvLine, TimesBeforeTheEpochAndAtTheEndOfAYearAreRight) {
  RequestRecord record;
  record.received_wall_ns = -1;
  EXPECT_EQ(parse_csv(line_of(record))[0][1], "1969-12-31T23:59:59.999999Z");
  record.received_wall_ns = 1'709'251'199'999'999'999;
  EXPECT_EQ(parse_csv(line_of(record))[0][1], "2024-02-29T23:59:59.999999Z");
  record.received_wall_ns = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(parse_csv(line_of(record))[0][1], "2262-04-11T23:47:16.854775Z");
}

TEST(CsvLine, TheLongestLineFits) {
  RequestRecord record;
  record.sequence = UINT64_MAX;
  record.received_wall_ns = std::numeric_limits<int64_t>::max();
  record.stage_ns.fill(UINT64_MAX - 1);
  record.rows = UINT32_MAX;
  record.worker = UINT16_MAX - 1;
  record.status = UINT16_MAX;
  record.cache_use = CacheUse::kShared;
  record.transport = TransportKind::kHttp2;
  set_id(record, std::string(RequestRecord::kMaxIdBytes, '"'));
  const std::string longest = detail::csv_field(std::string(1000, '"'));
  EXPECT_EQ(longest.size(), detail::kMaxNameFieldBytes);
  const std::string line = line_of(record, {{longest}, {longest}, {longest}});
  EXPECT_EQ(line.size(), detail::kMaxCsvLineBytes);
  ASSERT_EQ(parse_csv(line).size(), 1u);
}

TEST(CsvLine, AnIdLengthThatCannotBeIsNotBelieved) {
  RequestRecord record = record_number(9);
  record.id_bytes = RequestRecord::kMaxIdBytes + 1;
  EXPECT_EQ(parse_csv(line_of(record))[0][0], "9");
}

}  // namespace
}  // namespace lumen::telemetry
