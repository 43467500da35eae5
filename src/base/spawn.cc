// See the header.
#include <lumen/base/spawn.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

namespace lumen {

SpawnActions::SpawnActions(int ours, int theirs) {
  posix_spawn_file_actions_init(&actions_);
  posix_spawnattr_init(&attributes_);
  // First, since `ours` may be 0 or 1.
  if (ours >= 0) posix_spawn_file_actions_adddup2(&actions_, ours, theirs);
  posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions_, STDERR_FILENO, STDOUT_FILENO);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes_, &none);
  posix_spawnattr_setpgroup(&attributes_, 0);
  posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
}

SpawnActions::~SpawnActions() {
  posix_spawn_file_actions_destroy(&actions_);
  posix_spawnattr_destroy(&attributes_);
}

std::string text_of_end(int status) {
  std::string text;
  if (WIFSIGNALED(status)) {
    text.append("by signal ").append(std::to_string(WTERMSIG(status)));
    return text.append(" (").append(strsignal(WTERMSIG(status))).append(")");
  }
  return text.append("with exit status ").append(std::to_string(WEXITSTATUS(status)));
}

}  // namespace lumen
