// Response heads: a status line, the lengths, Date; nothing that tells the software.
// Threads: any. Memory: none, writes into the caller's buffer.
// Errors: CHECK when the caller's own strings do not fit, they are ours and not the client's.
#include <lumen/base/check.h>
#include <lumen/wire/http.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace lumen::wire {
namespace {

// Writes where there is room for all of it, so that no write checks.
class Appender {
 public:
  explicit Appender(char* out) noexcept : begin_(out), at_(out) {}

  void put(char c) noexcept { *at_++ = c; }
  void put(std::string_view text) noexcept {
    at_ += text.copy(at_, text.size());  // not memcpy: an empty view may have no address
  }
  void put_unsigned(uint64_t value) noexcept { at_ = std::to_chars(at_, at_ + 20, value).ptr; }
  [[nodiscard]] size_t size() const noexcept { return static_cast<size_t>(at_ - begin_); }

 private:
  char* begin_;
  char* at_;
};

void put_two_digits(char* at, int64_t value) noexcept {
  at[0] = static_cast<char>('0' + value / 10);
  at[1] = static_cast<char>('0' + value % 10);
}

struct Day {
  int64_t year;
  int64_t month;  // 1 to 12
  int64_t day;    // 1 to 31
};

// Days since 1970-01-01 to a date of the proleptic Gregorian calendar, in 400-year eras that begin
// in March (Howard Hinnant, "chrono-compatible low-level date algorithms"). gmtime_r takes a lock
// in glibc (tzset), and Date is rendered on I/O threads.
Day civil_day(int64_t days) noexcept {
  days += 719468;
  const int64_t era = (days >= 0 ? days : days - 146096) / 146097;
  const int64_t day_of_era = days - era * 146097;
  const int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t day_of_year =
      day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t shifted_month = (5 * day_of_year + 2) / 153;
  const int64_t month = shifted_month < 10 ? shifted_month + 3 : shifted_month - 9;
  return {year_of_era + era * 400 + (month <= 2 ? 1 : 0), month,
          day_of_year - (153 * shifted_month + 2) / 5 + 1};
}

}  // namespace

std::string_view continue_response() noexcept { return "HTTP/1.1 100 Continue\r\n\r\n"; }

std::string_view reason_phrase(int status) noexcept {
  switch (status) {
    case 100: return "Continue";
    case 200: return "OK";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 421: return "Misdirected Request";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 499: return "Client Closed Request";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Unknown";
  }
}

size_t write_response_head(std::span<char> out, const ResponseHead& head,
                           std::string_view date) noexcept {
  // The fixed lines with every number at its longest take less than 256 bytes.
  LUMEN_CHECK(head.status >= 100 && head.status <= 999);
  LUMEN_CHECK(head.content_type.size() + head.extra.size() + head.cors.size() + date.size() + 256 <=
              out.size());
  Appender text(out.data());
  text.put("HTTP/1.1 ");
  text.put_unsigned(static_cast<uint64_t>(head.status));
  text.put(' ');
  text.put(reason_phrase(head.status));
  if (!date.empty()) {
    text.put("\r\nDate: ");
    text.put(date);
  }
  if (!head.content_type.empty()) {
    text.put("\r\nContent-Type: ");
    text.put(head.content_type);
  }
  if (head.inference_header_length) {
    text.put("\r\nInference-Header-Content-Length: ");
    text.put_unsigned(*head.inference_header_length);
  }
  text.put("\r\nContent-Length: ");
  text.put_unsigned(head.content_length);
  if (!head.keep_alive) text.put("\r\nConnection: close");
  text.put("\r\n");
  text.put(head.extra);
  text.put(head.cors);
  text.put("\r\n");
  return text.size();
}

void write_http_date(std::span<char, kDateBytes> out, int64_t unix_seconds) noexcept {
  constexpr char kTemplate[] = "Thu, 01 Jan 1970 00:00:00 GMT";
  constexpr std::string_view kDays = "SunMonTueWedThuFriSat";
  constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  constexpr int64_t kLastSecond = 253402300799;  // of the year 9999: four digits are all there is
  const int64_t clamped = unix_seconds < 0 ? 0 : std::min(unix_seconds, kLastSecond);
  const int64_t days = clamped / 86400;
  const int64_t second = clamped % 86400;
  const Day day = civil_day(days);
  char* const at = out.data();
  std::memcpy(at, kTemplate, kDateBytes);
  std::memcpy(at, kDays.data() + 3 * ((days + 4) % 7), 3);  // 1970-01-01 was a Thursday
  put_two_digits(at + 5, day.day);
  std::memcpy(at + 8, kMonths.data() + 3 * (day.month - 1), 3);
  put_two_digits(at + 12, day.year / 100);
  put_two_digits(at + 14, day.year % 100);
  put_two_digits(at + 17, second / 3600);
  put_two_digits(at + 20, second / 60 % 60);
  put_two_digits(at + 23, second % 60);
}

}  // namespace lumen::wire
