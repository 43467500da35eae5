// See the header. Not gmtime_r: it takes a lock for the time zone.
#include "telemetry/timestamp_text.h"

#include <chrono>
#include <cstring>

#include "telemetry/decimal.h"

namespace lumen::telemetry::detail {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;

char* put_pair(char* out, uint64_t value) noexcept {
  out[0] = static_cast<char>('0' + value / 10);
  out[1] = static_cast<char>('0' + value % 10);
  return out + 2;
}

}  // namespace

char* TimestampText::put(char* out, int64_t wall_ns) noexcept {
  const int64_t rest = wall_ns % kNsPerSecond;
  const int64_t ns = rest < 0 ? rest + kNsPerSecond : rest;
  const int64_t second = (wall_ns - ns) / kNsPerSecond;
  if (second != second_) keep(second);
  std::memcpy(out, text_.data(), text_.size());
  const auto us = static_cast<uint64_t>(ns) / 1000;
  out = put_triple(put_triple(out + text_.size(), us / 1000), us % 1000);
  *out++ = 'Z';
  return out;
}

void TimestampText::keep(int64_t second) noexcept {
  using namespace std::chrono;
  const sys_seconds time{seconds{second}};
  const auto day = floor<days>(time);
  const year_month_day date{day};
  const hh_mm_ss clock{time - day};
  const auto year = static_cast<uint64_t>(static_cast<int>(date.year()));
  char* out = put_pair(put_pair(text_.data(), year / 100), year % 100);
  *out++ = '-';
  out = put_pair(out, static_cast<unsigned>(date.month()));
  *out++ = '-';
  out = put_pair(out, static_cast<unsigned>(date.day()));
  *out++ = 'T';
  out = put_pair(out, static_cast<uint64_t>(clock.hours().count()));
  *out++ = ':';
  out = put_pair(out, static_cast<uint64_t>(clock.minutes().count()));
  *out++ = ':';
  out = put_pair(out, static_cast<uint64_t>(clock.seconds().count()));
  *out = '.';
  second_ = second;
}

}  // namespace lumen::telemetry::detail
