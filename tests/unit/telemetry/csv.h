// The parts that the tests of the trace log share: a folder of their own, whole files, and a strict
// reader of CSV.
// Threads: the caller's. Memory: the heap. Errors: a failed expectation, an empty result.
#pragma once

#include <lumen/telemetry/request_record.h>

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::telemetry {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lumen-trace-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const {
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

inline std::string whole_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

using Row = std::vector<std::string>;

// RFC 4180 with LF. Fails on a quote in the wrong place and on a last line without its LF.
inline std::vector<Row> parse_csv(std::string_view text) {
  std::vector<Row> rows;
  size_t at = 0;
  while (at < text.size()) {
    Row row;
    for (bool line_goes_on = true; line_goes_on;) {
      std::string field;
      if (at < text.size() && text[at] == '"') {
        for (++at; at < text.size(); ++at) {
          if (text[at] == '"' && (++at == text.size() || text[at] != '"')) break;
          field += text[at];
        }
      } else {
        const size_t end = text.find_first_of(",\n\"", at);
        field = text.substr(at, end - at);
        at = std::min(end, text.size());
      }
      if (at >= text.size() || (text[at] != ',' && text[at] != '\n')) {
        ADD_FAILURE() << "field " << row.size() << " of row " << rows.size() << " doesn't end";
        return rows;
      }
      line_goes_on = text[at++] == ',';
      row.push_back(std::move(field));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

inline constexpr size_t kTraceFields = 19;  // of the CSV's lines

// The rows under the header, each of as many fields: the CSV's, or its neighbour's.
inline std::vector<Row> records_in(const std::filesystem::path& path,
                                   size_t fields = kTraceFields) {
  std::vector<Row> rows = parse_csv(whole_file(path));
  if (rows.empty() || rows[0].size() != fields || rows[0][0] != "request_id") {
    ADD_FAILURE() << path << " doesn't begin with the header";
    return {};
  }
  rows.erase(rows.begin());
  for (const Row& row : rows) EXPECT_EQ(row.size(), fields) << path;
  return rows;
}

inline RequestRecord record_number(uint64_t sequence) {
  RequestRecord record;
  record.sequence = sequence;
  record.received_wall_ns = 1'795'225'407'123'456'789;  // 2026-11-21T01:43:27.123456789Z
  record.stage_ns = {
      RequestRecord::kAbsent, 2'000 + sequence, 3'000, 4'000, 5'001, 6'010, 7'100, 1'234'567};
  record.rows = 1;
  record.status = 200;
  return record;
}

inline Traceparent traceparent_number(uint8_t number) {
  Traceparent one{.is_present = 1, .flags = 1};
  for (uint8_t i = 0; i < 16; ++i) one.trace_id[i] = static_cast<uint8_t>(0xa0 + i);
  for (uint8_t i = 0; i < 8; ++i) one.parent_id[i] = static_cast<uint8_t>(0x0b + i);
  one.parent_id[7] = number;
  return one;
}

inline void set_id(RequestRecord& record, std::string_view id) {
  ASSERT_LE(id.size(), RequestRecord::kMaxIdBytes);
  record.id_bytes = static_cast<uint8_t>(id.size());
  std::memcpy(record.id.data(), id.data(), id.size());
}

}  // namespace lumen::telemetry
