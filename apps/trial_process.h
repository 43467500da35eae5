// TrialProcesses: processes of this program that load and run models before the server does, so
// that a backend that crashes on a model ends such a process and not the server. One serves one
// model after the other until end(); there are as many as threads load models at once.
// Threads: several at once; a thread that has started one lives until end(), since the process ends
// with it. Memory: the heap. Errors: Status; where no process can be started models are not tried,
// which is logged once.
#pragma once

#include <lumen/base/unique_fd.h>
#include <lumen/models/load_trials.h>

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Not for people: the process reads from a socket.
inline constexpr std::string_view kTryModelsCommand = "try-models";
// The work of that process until its socket ends. `execution_providers`: as the setting. The exit
// status.
[[nodiscard]] int run_try_models(std::string_view execution_providers);

// How the processes are started.
struct TrialProgram {
  std::filesystem::path program = "/proc/self/exe";  // called with kTryModelsCommand
  std::string execution_providers{"[]"};             // the setting, its one argument
};

// One of them. By one thread at a time.
class TrialProcess {
 public:
  enum class Answer : uint8_t { kDone, kEnded, kTooLate, kStopped };

  TrialProcess() = default;
  ~TrialProcess() { end(); }
  TrialProcess(const TrialProcess&) = delete;
  TrialProcess& operator=(const TrialProcess&) = delete;

  [[nodiscard]] lumen::Status start(const TrialProgram& program);
  // Not ok: it could not be sent. A process that has ended is told by wait_for_answer().
  [[nodiscard]] lumen::Status send(std::string_view message);
  [[nodiscard]] Answer wait_for_answer(uint64_t most_ns, const std::atomic<bool>* stop);
  // Waits for its end. Returns waitpid()'s status.
  int reap() noexcept;
  void end() noexcept;

 private:
  lumen::UniqueFd socket_;
  pid_t pid_ = 0;  // 0: none
};

class TrialProcesses final : public lumen::models::LoadTrials {
 public:
  // Large models load within this; a backend that never comes back from a load is ended.
  static constexpr uint64_t kMostTrialNs = 600'000'000'000;

  explicit TrialProcesses(TrialProgram program = {}, uint64_t most_ns = kMostTrialNs)
      : program_(std::move(program)), most_ns_(most_ns) {}

  [[nodiscard]] lumen::Status try_in_process(const lumen::models::ModelSource& source,
                                             std::string_view backend,
                                             const std::atomic<bool>* stop) override;
  void end() noexcept override;

 private:
  // An idle one, or a new one. nullptr: none can be started.
  [[nodiscard]] std::unique_ptr<TrialProcess> take();
  void give_back(std::unique_ptr<TrialProcess> process);

  const TrialProgram program_;
  const uint64_t most_ns_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<TrialProcess>> idle_;
  bool has_failed_to_start_ = false;
};
