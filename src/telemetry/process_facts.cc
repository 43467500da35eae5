// See the header.
#include "telemetry/process_facts.h"

#include <lumen/base/clock.h>
#include <lumen/base/unique_fd.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <ctime>
#include <string_view>

namespace lumen::telemetry {
namespace {

constexpr int kStartField = 22;  // proc(5)
constexpr int kStateField = 3;   // the first behind the name, which may hold anything, ")" too

uint64_t read_start_ticks() noexcept {
  const UniqueFd file(::open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> text;
  const ssize_t size = file.valid() ? ::read(file.get(), text.data(), text.size()) : -1;
  if (size <= 0) return 0;
  std::string_view rest(text.data(), static_cast<size_t>(size));
  const size_t name_end = rest.rfind(") ");
  if (name_end == std::string_view::npos) return 0;
  rest.remove_prefix(name_end + 2);
  for (int field = kStateField; field < kStartField; ++field) {
    const size_t space = rest.find(' ');
    if (space == std::string_view::npos) return 0;
    rest.remove_prefix(space + 1);
  }
  uint64_t ticks = 0;
  (void)std::from_chars(rest.data(), rest.data() + rest.size(), ticks);
  return ticks;
}

}  // namespace

ProcessFacts ProcessFacts::now() noexcept {
  timespec wall;
  ::clock_gettime(CLOCK_REALTIME, &wall);
  return {.pid = static_cast<uint32_t>(::getpid()),
          .wall_ns = int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec,
          .monotonic_ns = now_ns(),
          .start_ticks = read_start_ticks()};
}

}  // namespace lumen::telemetry
