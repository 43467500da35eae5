// SpawnActions: how the server starts a process beside it, by posix_spawn(3).
// Threads: values. Memory: the C library's. Errors: posix_spawn's own.
#pragma once

#include <spawn.h>

#include <string>

namespace lumen {

// A process group of its own, since a stop from the terminal is the server's; no signal blocked;
// nothing to read; output goes to the server's stderr.
class SpawnActions {
 public:
  // The process has descriptor `ours` as `theirs`; -1: none. Descriptors that close on exec are not
  // its.
  explicit SpawnActions(int ours = -1, int theirs = -1);
  ~SpawnActions();
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;

  [[nodiscard]] const posix_spawn_file_actions_t* actions() const noexcept { return &actions_; }
  [[nodiscard]] const posix_spawnattr_t* attributes() const noexcept { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// Of waitpid()'s status: "by signal 11 (Segmentation fault)", "with exit status 3".
[[nodiscard]] std::string text_of_end(int status);

}  // namespace lumen
