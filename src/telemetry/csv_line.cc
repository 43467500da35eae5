// Rendering of one line. Threads: any; pure. Memory: csv_field() the heap, a line none.
// Errors: never.
#include "telemetry/csv_line.h"

#include <cstring>
#include <span>

#include "telemetry/decimal.h"

namespace lumen::telemetry::detail {
namespace {

constexpr std::string_view kQuotedCharacters = ",\"\r\n";
constexpr std::string_view kFormulaStarts = "=+-@\t\r";

char* put(char* out, std::string_view text) noexcept {
  std::memcpy(out, text.data(), text.size());
  return out + text.size();
}

// `prefix`: a byte before the text; 0: none.
char* put_field(char* out, std::string_view text, char prefix = 0) noexcept {
  const bool is_quoted = text.find_first_of(kQuotedCharacters) != std::string_view::npos;
  if (is_quoted) *out++ = '"';
  if (prefix != 0) *out++ = prefix;
  if (!is_quoted) return put(out, text);
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

// By which a line is found again, in either file.
char* put_id_and_time(const RequestRecord& record, TimestampText& time, char* out) noexcept {
  const size_t id_bytes = record.id_bytes;
  if (id_bytes == 0 || id_bytes > RequestRecord::kMaxIdBytes) {
    out = put_number(out, record.sequence);
  } else {
    // A client's id may be a formula to a spreadsheet; behind this byte each takes it as text
    // (OWASP, CSV injection).
    const bool is_formula = kFormulaStarts.find(record.id[0]) != std::string_view::npos;
    out = put_field(out, {record.id.data(), id_bytes}, is_formula ? '\'' : '\0');
  }
  *out++ = ',';
  return time.put(out, record.received_wall_ns);
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

char* write_csv_line(const RequestRecord& record, const CsvNames& names, TimestampText& time,
                     char* out) noexcept {
  out = put_id_and_time(record, time, out);
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
    out = put_triple(out, ns % 1000);
  }
  *out++ = ',';
  out = put_number(out, record.rows);
  *out++ = ',';
  out = put_number(out, record.status);
  *out++ = ',';
  const auto use = static_cast<size_t>(record.cache_use);
  if (use < kCacheUseNames.size()) out = put(out, kCacheUseNames[use]);
  *out++ = ',';
  const auto transport = static_cast<size_t>(record.transport);
  if (transport < kTransportNames.size()) out = put(out, kTransportNames[transport]);
  *out++ = ',';
  out = put_name(out, names.queue_types, record.lane);
  *out++ = '\n';
  return out;
}

char* write_traceparent_line(const RequestRecord& record, TimestampText& time, char* out) noexcept {
  const Traceparent& traceparent = record.traceparent;
  out = put_id_and_time(record, time, out);
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
