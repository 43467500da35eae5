// TrialProcess: a process of this program that loads and runs models before the server does, so that a backend that
// crashes on one ends that process and not the server. It serves one model after the other until end().
// Threads: one at a time. Memory: the heap. Errors: Status; where no process can be started models are not tried, which
// is logged once.
#pragma once

#include <lumen/base/unique_fd.h>
#include <lumen/engine/load_trials.h>

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

// Not for people: the process reads from a socket.
inline constexpr std::string_view kTryModelsCommand = "try-models";
// What that process does until its socket ends. The exit status.
[[nodiscard]] int run_try_models();

class TrialProcess final : public lumen::engine::LoadTrials {
 public:
  // Large models load within this; a backend that never comes back from a load is ended.
  static constexpr uint64_t kMostTrialNs = 600'000'000'000;

  // `program`: called with kTryModelsCommand.
  explicit TrialProcess(std::filesystem::path program = "/proc/self/exe",
                        uint64_t most_ns = kMostTrialNs)
      : program_(std::move(program)), most_ns_(most_ns) {}
  ~TrialProcess() override { end(); }
  TrialProcess(const TrialProcess&) = delete;
  TrialProcess& operator=(const TrialProcess&) = delete;

  [[nodiscard]] lumen::Status try_in_process(const lumen::engine::ModelSource& source,
                                             std::string_view backend,
                                             const std::atomic<bool>* stop) override;
  void end() noexcept override;

 private:
  enum class Answer : uint8_t { kDone, kEnded, kTooLate, kStopped };

  [[nodiscard]] lumen::Status start();
  [[nodiscard]] Answer wait_for_answer(const std::atomic<bool>* stop);
  // Waits for its end. What waitpid() says of it.
  int reap() noexcept;

  const std::filesystem::path program_;
  const uint64_t most_ns_;
  lumen::UniqueFd socket_;
  pid_t pid_ = 0;  // 0: none
  bool has_failed_to_start_ = false;
};
