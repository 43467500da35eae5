// Sums of tallies. One thread; no allocation but of the error's text.
#include <lumen/client/tally.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace lumen::client {

uint64_t Tally::failed_count() const noexcept {
  const uint64_t answered = std::accumulate(by_status.begin(), by_status.end(), uint64_t{0});
  return std::accumulate(failures.begin(), failures.end(), answered - ok_count());
}

void Tally::merge(const Tally& other) {
  latency.merge(other.latency);
  connect.merge(other.connect);
  send_lag.merge(other.send_lag);
  std::ranges::transform(by_status, other.by_status, by_status.begin(), std::plus{});
  std::ranges::transform(failures, other.failures, failures.begin(), std::plus{});
  bytes_sent += other.bytes_sent;
  bytes_received += other.bytes_received;
  shortest_reply = std::min(shortest_reply, other.shortest_reply);
  longest_reply = std::max(longest_reply, other.longest_reply);
  unsent += other.unsent;
  unanswered += other.unanswered;
  most_waiting += other.most_waiting;
  if (first_error.empty()) first_error = other.first_error;
  seconds = std::max(seconds, other.seconds);
  per_second += other.per_second;
  cpu_seconds += other.cpu_seconds;
  busiest_cpu = std::max(busiest_cpu, other.busiest_cpu);
  busiest_turns = std::max(busiest_turns, other.busiest_turns);
  fewest_empty_polls = std::min(fewest_empty_polls, other.fewest_empty_polls);
}

}  // namespace lumen::client
