// Starts, awaits and stops a child. Main thread; the heap; as child_server.h says.
#include "client/child_server.h"

#include <lumen/base/clock.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace lumen::client {

namespace {

constexpr size_t kLogEndBytes = 300;

int milliseconds_until(uint64_t deadline_ns) noexcept {
  const uint64_t now = now_ns();
  return deadline_ns > now ? static_cast<int>((deadline_ns - now) / 1'000'000u) + 1 : 0;
}

// In the child, between fork() and exec(): only calls that are safe there.
[[noreturn]] void become(const char* executable, char* const* words, int output, int log,
                         pid_t parent) noexcept {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it ended before the line above
  const int null = open("/dev/null", O_RDONLY);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
      dup2(log, STDERR_FILENO) < 0) {
    _exit(127);
  }
  execv(executable, words);
  _exit(127);
}

std::string describe_end(int wait_status) {
  if (WIFEXITED(wait_status)) return "exit status " + std::to_string(WEXITSTATUS(wait_status));
  if (WIFSIGNALED(wait_status)) return std::string(strsignal(WTERMSIG(wait_status)));
  return "an unknown end";
}

}  // namespace

Result<std::unique_ptr<ChildServer>> ChildServer::start(const std::filesystem::path& executable,
                                                        const std::vector<std::string>& arguments,
                                                        uint64_t timeout_ns) {
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), "lumen");
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  std::unique_ptr<ChildServer> server(new ChildServer);
  server->log_ = UniqueFd(memfd_create("lumen-serve-log", MFD_CLOEXEC));
  int ends[2] = {-1, -1};
  if (!server->log_.valid() || pipe2(ends, O_CLOEXEC) != 0) {
    return Status::from_errno(errno, "no descriptor for a server's output");
  }
  server->output_ = UniqueFd(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t parent = getpid();
  server->pid_ = fork();
  if (server->pid_ < 0) return Status::from_errno(errno, "fork");
  if (server->pid_ == 0) {
    become(executable.c_str(), pointers.data(), write_end.get(), server->log_.get(), parent);
  }
  write_end.reset();  // so that the child's end ends the output
  LUMEN_RETURN_IF_ERROR(server->wait_until_ready(timeout_ns));
  return server;
}

Status ChildServer::wait_until_ready(uint64_t timeout_ns) {
  constexpr std::string_view kReady = "lumen: ready http=";
  const uint64_t deadline_ns = now_ns() + timeout_ns;
  std::string output;
  for (;;) {
    const size_t at = output.find(kReady);
    const size_t end = at == std::string::npos ? at : output.find('\n', at);
    if (end != std::string::npos) {
      const std::string rest = output.substr(at + kReady.size(), end - at - kReady.size());
      http_address_ = rest.substr(0, rest.find(' '));
      return {};
    }
    pollfd entry{output_.get(), POLLIN, 0};
    const int ready = poll(&entry, 1, milliseconds_until(deadline_ns));
    if (ready == 0)
      return Status::error(Code::kUnavailable, "not ready in time: %s", log_end().c_str());
    if (ready < 0) return Status::from_errno(errno, "the wait for the server was ended");
    char bytes[4096];
    const ssize_t count = read(output_.get(), bytes, sizeof(bytes));
    if (count > 0) {
      output.append(bytes, static_cast<size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      const bool ended = reap(5'000'000'000u);
      return Status::error(Code::kUnavailable, "it did not start (%s): %s",
                           ended ? describe_end(wait_status_).c_str() : "its output closed",
                           log_end().c_str());
    }
  }
}

bool ChildServer::reap(uint64_t timeout_ns) {
  if (pid_ < 0) return true;
  const UniqueFd handle(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  const uint64_t deadline_ns = now_ns() + timeout_ns;
  for (;;) {
    if (waitpid(pid_, &wait_status_, WNOHANG) == pid_) {
      pid_ = -1;
      return true;
    }
    const int left_ms = milliseconds_until(deadline_ns);
    if (left_ms == 0) return false;
    pollfd entry{handle.get(), POLLIN, 0};
    poll(&entry, 1, left_ms);
  }
}

Status ChildServer::stop(uint64_t timeout_ns) {
  // After SIGTERM it would serve on for its drain delay.
  if (pid_ >= 0) kill(pid_, SIGINT);
  if (!reap(timeout_ns)) {
    return Status::error(Code::kInternal, "still running long after SIGINT: %s", log_end().c_str());
  }
  if (wait_status_ == 0) return {};
  return Status::error(Code::kInternal, "it ended with %s: %s", describe_end(wait_status_).c_str(),
                       log_end().c_str());
}

std::string ChildServer::log_end() const {
  struct stat status{};
  if (fstat(log_.get(), &status) != 0 || status.st_size == 0) return "it logged nothing";
  const auto size = static_cast<size_t>(status.st_size);
  std::string text(std::min(size, kLogEndBytes), '\0');
  const ssize_t count =
      pread(log_.get(), text.data(), text.size(), static_cast<off_t>(size - text.size()));
  text.resize(count < 0 ? 0 : static_cast<size_t>(count));
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

ChildServer::~ChildServer() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  static_cast<void>(reap(10'000'000'000u));
}

}  // namespace lumen::client
