// ChildServer: `lumen serve` as a child process that never outlives this one.
// Threads: the main thread alone (the kernel ends the child with the thread that started it).
// Memory: the heap. Errors: Status with the end of the child's log.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lumen::client {

class ChildServer {
 public:
  // Runs `executable arguments...` and waits for its line "lumen: ready http=HOST:PORT".
  [[nodiscard]] static Result<std::unique_ptr<ChildServer>> start(
      const std::filesystem::path& executable, const std::vector<std::string>& arguments,
      uint64_t timeout_ns = 120'000'000'000u);
  ~ChildServer();  // kills a child that still runs
  ChildServer(const ChildServer&) = delete;
  ChildServer& operator=(const ChildServer&) = delete;

  [[nodiscard]] const std::string& http_address() const noexcept { return http_address_; }
  // SIGTERM, and waits for the end; an error unless the child ends with status 0 in time.
  [[nodiscard]] Status stop(uint64_t timeout_ns = 60'000'000'000u);

 private:
  ChildServer() = default;
  [[nodiscard]] Status wait_until_ready(uint64_t timeout_ns);
  // True when the child has ended, with its wait status in wait_status_.
  [[nodiscard]] bool reap(uint64_t timeout_ns);
  [[nodiscard]] std::string log_end() const;

  pid_t pid_ = -1;  // -1: ended and waited for
  int wait_status_ = 0;
  UniqueFd output_;  // of its stdout, kept open: a closed one would end it by SIGPIPE
  UniqueFd log_;     // its stderr, in memory
  std::string http_address_;
};

}  // namespace lumen::client
