// StepLink: the requests that are with a model's Python process, and the thread that takes their
// replies, watches their deadlines and starts the process again when it has ended.
//
// A request that the ring has no room for waits until there is some. A request whose deadline
// passes is answered at once; the process may still be busy with it. Then it is asked for a sign
// of life, and one that gives none for kSilenceNs is killed: any reply is one. Requests that a
// process had when it ended fail (503), and so do those that come before the next one is ready.
//
// Threads: start() by several; `done` is called by the link's thread. Memory: the table of requests
// at construction, and the rings. Errors: the request's status.
#pragma once

#include <lumen/base/unique_fd.h>
#include <lumen/models/backend.h>

#include "backends/python/step_process.h"
#include "backends/python/waiting_line.h"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace lumen::backends::python {

class StepLink {
 public:
  // Far more than the workers hand over: kMostInFlight of each.
  static constexpr uint32_t kPlaces = WaitingLine::kMost;
  // As long as a client waits for a server that stands still, by default.
  static constexpr uint64_t kSilenceNs = 10'000'000'000;

  using Done = void (*)(models::InferRequest&) noexcept;

  [[nodiscard]] static Result<std::unique_ptr<StepLink>> open(StepSource source);
  // No request is with the process.
  ~StepLink();
  StepLink(const StepLink&) = delete;
  StepLink& operator=(const StepLink&) = delete;

  [[nodiscard]] models::StartOutcome start(models::InferRequest& request, Done done) noexcept;
  [[nodiscard]] const models::ModelMetadata& metadata() const noexcept { return source_.metadata; }
  // relaxed: after start() the mutex has ordered it behind the restart of the process that it used
  [[nodiscard]] uint64_t restarts() const noexcept {
    return restarts_.load(std::memory_order_relaxed);
  }

 private:
  enum class Sending : uint8_t { kSent, kNoRoom, kRefused };
  struct Taken {
    bus::Requester::Reply reply;
    Place place;
  };

  StepLink(StepSource source, std::unique_ptr<StepProcess> process);
  void run() noexcept;
  // Until the process has ended or is killed, or the link stops.
  void serve() noexcept;
  [[nodiscard]] std::optional<Taken> take() noexcept;
  void finish(const Taken& taken) noexcept;
  // Whether one of those that wait was completed.
  [[nodiscard]] bool complete_waiting() noexcept;
  void sleep() noexcept;
  void fail_all(const Status& status) noexcept;
  // False: the link stops.
  [[nodiscard]] bool wait(std::chrono::milliseconds pause) noexcept;
  // Fails the requests that the process had. False: the link stops.
  [[nodiscard]] bool leave_process() noexcept;
  // False: it could not be started.
  [[nodiscard]] bool restart() noexcept;
  [[nodiscard]] Status late_status() const noexcept;
  void tell(std::string_view how, std::string_view why) const;

  // All below: under the mutex.
  // kRefused: the request has the status.
  [[nodiscard]] Sending send(const Place& place) noexcept;
  // Asks for a sign of life, where one is due, and sends requests that wait. One that is refused or
  // late is to be completed.
  [[nodiscard]] std::optional<Place> send_waiting() noexcept;
  [[nodiscard]] bool wants_room() const noexcept { return wants_ping_ || !waiting_.is_empty(); }
  void ping() noexcept;
  [[nodiscard]] bool has_room_now() noexcept;

  StepSource source_;
  UniqueFd alarm_;  // an eventfd: the thread is to look anew
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> restarts_{0};

  std::mutex mutex_;  // of all below, but for the process's subscriber, which is the thread's
  std::condition_variable stopping_;
  std::unique_ptr<StepProcess> process_;
  bool is_ready_ = false;
  std::string why_not_ready_;
  std::array<Place, kPlaces> places_{};
  WaitingLine waiting_;
  uint64_t ping_id_ = kNoPing;
  bool wants_ping_ = false;  // there was no room for it
  // The process is killed then, unless it gives a sign of life. UINT64_MAX: none is awaited.
  uint64_t silent_until_ns_ = UINT64_MAX;
  uint64_t unexpected_ = 0;       // replies to requests that were late
  uint64_t sleeps_until_ns_ = 0;  // 0: awake
  static constexpr uint64_t kNoPing = UINT64_MAX;

  std::thread thread_;
};

}  // namespace lumen::backends::python
