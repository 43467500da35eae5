// A model's computation: a session on the CPU of the same file. With a stream the results are
// there early and kept back: a job of the stream writes them when the run's time is over, so that
// a read that comes too soon does not get them. An input that changes before is an error.
// Threads: any. Memory: the session's; copies of a run's tensors. Errors: statuses.
#pragma once

#include "device/library.h"
#include "device/memory.h"

#include <string>
#include <vector>

namespace lumen::device {

struct Computation : OrtNodeComputeInfo {
  OrtSession* session = nullptr;
  OrtMemoryInfo* cpu = nullptr;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;

  Computation();
  ~Computation();
  Computation(const Computation&) = delete;
  Computation& operator=(const Computation&) = delete;

  // With the names of `node`, of which `graph` is the body.
  [[nodiscard]] OrtStatus* open(OrtEnv* env, const OrtGraph* graph, const OrtNode* node);

 private:
  struct Run;
  [[nodiscard]] OrtStatus* run(OrtKernelContext* context);
  [[nodiscard]] OrtStatus* compute(OrtKernelContext* context, Run& run) const;
  [[nodiscard]] OrtStatus* take_input(OrtKernelContext* context, size_t index, Run& run) const;
};

}  // namespace lumen::device
