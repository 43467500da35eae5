// asked_by: the client of a job, for the log. Threads: any. Memory: the heap. Errors: none.
#pragma once

#include <lumen/service/job.h>

#include <string>

namespace lumen::server {

// " by pid 4711, uid 1000"; empty where the kernel does not know it.
[[nodiscard]] inline std::string asked_by(const service::Job& job) {
  if (!job.by) return {};
  return " by pid " + std::to_string(job.by->pid) + ", uid " + std::to_string(job.by->uid);
}

}  // namespace lumen::server
