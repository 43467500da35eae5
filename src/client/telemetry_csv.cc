// Reads two columns of the telemetry CSV by their names. Any thread; the heap.
#include "client/telemetry_csv.h"

#include <lumen/base/text_file.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

namespace lumen::client {

namespace {

// The records of RFC 4180, one at a time: a quoted field may hold commas, quotes and line ends.
class CsvReader {
 public:
  explicit CsvReader(std::string_view text) noexcept : rest_(text) {}

  // The next record's fields; empty at the end.
  std::vector<std::string> next() {
    std::vector<std::string> fields;
    while (!rest_.empty()) {
      fields.push_back(rest_.front() == '"' ? quoted() : plain());
      if (rest_.empty()) break;
      const char end = rest_.front();
      rest_.remove_prefix(1);
      if (end == '\n') break;
      if (end == ',' && rest_.empty()) fields.emplace_back();
    }
    return fields;
  }

 private:
  std::string plain() {
    const size_t end = std::min(rest_.find_first_of(",\n"), rest_.size());
    std::string field(rest_.substr(0, end));
    rest_.remove_prefix(end);
    if (field.ends_with('\r')) field.pop_back();
    return field;
  }
  std::string quoted() {
    std::string field;
    size_t at = 1;
    for (; at < rest_.size(); ++at) {
      if (rest_[at] == '"') {
        if (at + 1 >= rest_.size() || rest_[at + 1] != '"') break;
        ++at;
      }
      field += rest_[at];
    }
    rest_.remove_prefix(std::min(at + 1, rest_.size()));
    rest_.remove_prefix(std::min(rest_.find_first_of(",\n"), rest_.size()));  // a '\r' at most
    return field;
  }

  std::string_view rest_;
};

std::optional<size_t> column_of(const std::vector<std::string>& header, std::string_view name) {
  const auto found = std::ranges::find(header, name);
  if (found == header.end()) return std::nullopt;
  return static_cast<size_t>(found - header.begin());
}

Status refuse(const char* why) {
  return Status::error(Code::kInvalidArgument, "telemetry CSV: %s", why);
}

}  // namespace

Result<QueueResidency> queue_residency_of(std::string_view csv, std::string_view id) {
  CsvReader reader(csv);
  const std::vector<std::string> header = reader.next();
  const auto id_column = column_of(header, "request_id");
  const auto queue_column = column_of(header, "queue_us");
  if (!id_column || !queue_column) return refuse("no columns request_id and queue_us");
  std::vector<double> waits;
  for (auto row = reader.next(); !row.empty(); row = reader.next()) {
    if (row.size() != header.size()) return refuse("a row with another number of fields");
    if (row[*id_column] != id || row[*queue_column].empty()) continue;
    const std::string& text = row[*queue_column];
    double value = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || rest != text.data() + text.size()) {
      return refuse("a queue_us that is no number");
    }
    waits.push_back(value);
  }
  if (waits.empty()) return refuse("no row of the measured requests has a queue_us");
  std::ranges::sort(waits);
  const auto count = static_cast<double>(waits.size());
  const auto rank = static_cast<size_t>(std::ceil(0.99 * count)) - 1;
  return QueueResidency{waits.size(), std::accumulate(waits.begin(), waits.end(), 0.0) / count,
                        waits[rank]};
}

Result<QueueResidency> read_queue_residency(const std::filesystem::path& file,
                                            std::string_view id) {
  const Result<std::string> content = read_file(file);
  if (!content.ok()) return content.status();
  return queue_residency_of(*content, id);
}

}  // namespace lumen::client
