// Rendering of one line. Threads: any; pure. Memory: csv_field() the heap, a line none.
// Errors: never.
#include "telemetry/csv_line.h"

#include <charconv>
#include <chrono>
#include <cstring>
#include <span>

namespace lumen::telemetry::detail {
namespace {

constexpr std::string_view kQuotedCharacters = ",\"\r\n";

char* put(char* out, std::string_view text) noexcept {
  std::memcpy(out, text.data(), text.size());
  return out + text.size();
}

template <typename Integer>
char* put_number(char* out, Integer value) noexcept {
  return std::to_chars(out, out + 20, value).ptr;  // 20 digits: the largest 64-bit integer
}

// `value` < 10^digits, with leading zeroes.
char* put_padded(char* out, uint64_t value, int digits) noexcept {
  for (int i = digits - 1; i >= 0; --i, value /= 10) out[i] = static_cast<char>('0' + value % 10);
  return out + digits;
}

char* put_field(char* out, std::string_view text) noexcept {
  if (text.find_first_of(kQuotedCharacters) == std::string_view::npos) return put(out, text);
  *out++ = '"';
  for (const char c : text) {
    if (c == '"') *out++ = '"';
    *out++ = c;
  }
  *out++ = '"';
  return out;
}

char* put_name(char* out, const std::vector<std::string>& names, size_t index) noexcept {
  return index < names.size() ? put(out, names[index]) : out;
}

// 2026-11-21T01:43:27.123456Z. Not gmtime_r: it takes a lock for the time zone.
char* put_timestamp(char* out, int64_t wall_ns) noexcept {
  using namespace std::chrono;
  const sys_time<nanoseconds> time{nanoseconds{wall_ns}};
  const auto day = floor<days>(time);
  const year_month_day date{day};
  const hh_mm_ss clock{floor<microseconds>(time - day)};
  out = put_padded(out, static_cast<uint64_t>(static_cast<int>(date.year())), 4);
  *out++ = '-';
  out = put_padded(out, static_cast<unsigned>(date.month()), 2);
  *out++ = '-';
  out = put_padded(out, static_cast<unsigned>(date.day()), 2);
  *out++ = 'T';
  out = put_padded(out, static_cast<uint64_t>(clock.hours().count()), 2);
  *out++ = ':';
  out = put_padded(out, static_cast<uint64_t>(clock.minutes().count()), 2);
  *out++ = ':';
  out = put_padded(out, static_cast<uint64_t>(clock.seconds().count()), 2);
  *out++ = '.';
  out = put_padded(out, static_cast<uint64_t>(clock.subseconds().count()), 6);
  *out++ = 'Z';
  return out;
}

// By which a line is found again, in either file.
char* put_id_and_time(const RequestRecord& record, char* out) noexcept {
  const size_t id_bytes = record.id_bytes;
  if (id_bytes == 0 || id_bytes > RequestRecord::kMaxIdBytes) {
    out = put_number(out, record.sequence);
  } else {
    out = put_field(out, {record.id.data(), id_bytes});
  }
  *out++ = ',';
  return put_timestamp(out, record.received_wall_ns);
}

char* put_hex(char* out, std::span<const uint8_t> bytes) noexcept {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const uint8_t byte : bytes) {
    *out++ = kDigits[byte >> 4];
    *out++ = kDigits[byte & 15];
  }
  return out;
}

}  // namespace

std::string csv_field(std::string_view text) {
  std::string field(kMaxNameFieldBytes, '\0');
  char* end = put_field(field.data(), text.substr(0, limits::kMaxNameBytes));
  field.resize(static_cast<size_t>(end - field.data()));
  return field;
}

char* write_csv_line(const RequestRecord& record, const CsvNames& names, char* out) noexcept {
  out = put_id_and_time(record, out);
  *out++ = ',';
  out = put_name(out, names.models, record.model);
  *out++ = ',';
  out = put_name(out, names.queue_types, record.queue_type);
  *out++ = ',';
  out = put_name(out, names.allocator_types, record.allocator_type);
  *out++ = ',';
  if (record.worker != RequestRecord::kNone) out = put_number(out, record.worker);
  for (const uint64_t ns : record.stage_ns) {
    *out++ = ',';
    if (ns == RequestRecord::kAbsent) continue;
    out = put_number(out, ns / 1000);
    *out++ = '.';
    out = put_padded(out, ns % 1000, 3);
  }
  *out++ = ',';
  out = put_number(out, record.rows);
  *out++ = ',';
  out = put_number(out, record.status);
  *out++ = ',';
  const auto use = static_cast<size_t>(record.cache_use);
  if (use < kCacheUseNames.size()) out = put(out, kCacheUseNames[use]);
  *out++ = '\n';
  return out;
}

char* write_traceparent_line(const RequestRecord& record, char* out) noexcept {
  const Traceparent& traceparent = record.traceparent;
  out = put_id_and_time(record, out);
  out = put(out, ",00-");
  out = put_hex(out, traceparent.trace_id);
  *out++ = '-';
  out = put_hex(out, traceparent.parent_id);
  *out++ = '-';
  out = put_hex(out, {&traceparent.flags, 1});
  *out++ = '\n';
  return out;
}

}  // namespace lumen::telemetry::detail
