// StepProcess: a Python process that has read a model.py, and the connection to it.
// Threads: one at a time. Memory: the heap. Errors: a Status with the process's end, or with the
// words of its exception.
#pragma once

#include <lumen/backends/python.h>
#include <lumen/base/result.h>
#include <lumen/bus/request_reply.h>
#include <lumen/models/metadata.h>

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace lumen::backends::python {

// Types of a message, and a reply's status. As in python/lumen_engine/step.py.
enum class StepMessage : uint32_t { kLoad = 1, kRun = 2, kPing = 3 };
enum class StepStatus : uint32_t { kDone = 0, kFailed = 1, kBadInput = 2 };

struct StepSource {
  PythonOptions python;
  std::filesystem::path file;
  models::ModelMetadata metadata;
  uint64_t ring_bytes = 0;  // of each way; a power of two
};

class StepProcess {
 public:
  // Returns once the process has run the file's own statements. `stop`: ends the wait early.
  [[nodiscard]] static Result<std::unique_ptr<StepProcess>> start(const StepSource& source,
                                                                  const std::atomic<bool>& stop);
  // Closes the connection, waits a moment and kills the process.
  ~StepProcess();
  StepProcess(const StepProcess&) = delete;
  StepProcess& operator=(const StepProcess&) = delete;

  [[nodiscard]] bus::Requester& requester() noexcept { return *requester_; }
  void kill() noexcept;
  // "it ended by signal 11 (Segmentation fault)"; waits for the end, which the bus has told of.
  [[nodiscard]] std::string text_of_end();

 private:
  StepProcess() = default;
  [[nodiscard]] Status connect(const std::string& path, const std::atomic<bool>& stop);
  [[nodiscard]] Status load(const StepSource& source);
  [[nodiscard]] bool has_ended() noexcept;
  bool wait_for_end(uint64_t timeout_ns) noexcept;

  pid_t pid_ = -1;
  bool has_ended_ = false;
  int end_ = 0;  // as waitpid() gives it
  std::unique_ptr<bus::Requester> requester_;
};

}  // namespace lumen::backends::python
