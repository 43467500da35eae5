// RLIMIT_NOFILE and /proc/self/fd. Control plane. Threads, memory and errors: see the header.
#include <lumen/net/descriptor_limit.h>

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace lumen::net {
namespace {

// Where /proc is not mounted: a server with OpenVINO has opened some 20 by the time it is asked.
constexpr uint64_t kGuess = 64;

}  // namespace

uint64_t open_descriptors() {
  std::error_code error;
  uint64_t entries = 0;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    ++entries;
  }
  if (error) return kGuess;
  return entries - 1;  // less the one that reads the folder
}

uint64_t raise_descriptor_limit(uint64_t wanted) noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return limit.rlim_cur;
  const rlimit raised{.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max),
                      .rlim_max = limit.rlim_max};
  return ::setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

}  // namespace lumen::net
