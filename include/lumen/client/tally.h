// Tally: the counts of one load thread; merged into one when all have ended.
// Threads: one writes it, then one reads. Memory: 60 KiB, made before the load begins.
// Errors: never.
#pragma once

#include <lumen/telemetry/histogram.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lumen::client {

enum class Failure : uint8_t {
  kConnect,  // no connection
  kClosed,   // ended or reset before the whole reply
  kTimeout,
  kBroken,  // not HTTP, or a reply without Content-Length
};
inline constexpr std::array<std::string_view, 4> kFailureNames = {"connect", "closed", "timeout",
                                                                  "broken reply"};
inline constexpr size_t kMaxStatus = 600;

struct Tally {
  telemetry::Histogram latency;   // of replies with status 200
  telemetry::Histogram connect;   // until the connection stands
  telemetry::Histogram send_lag;  // open loop: how late a request left though a client was free
  std::array<uint64_t, kMaxStatus> by_status{};
  std::array<uint64_t, kFailureNames.size()> failures{};
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t shortest_reply = UINT64_MAX;
  uint64_t longest_reply = 0;
  uint64_t unsent = 0;        // open loop: due in the window, no client was free before its end
  uint64_t unanswered = 0;    // open loop: sent, and no reply when the grace period ended
  uint64_t most_waiting = 0;  // open loop: requests due that waited for a client
  std::string first_error;

  // Summed over threads, of each one's own window.
  double seconds = 0;             // the longest
  double per_second = 0;          // the sum of each thread's rate of 200s
  double busiest_cpu = 0;         // share of its window that the busiest thread spent on a CPU
  double cpu_seconds = 0;         // of all threads
  double busiest_turns = 0;       // with `poll`: share of its window in turns that found something
  double fewest_empty_polls = 1;  // with `poll`: share of polls that found nothing, of that thread

  [[nodiscard]] uint64_t ok_count() const noexcept { return by_status[200]; }
  [[nodiscard]] uint64_t failed_count() const noexcept;
  void merge(const Tally& other);
};

}  // namespace lumen::client
