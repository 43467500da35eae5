// See the header.
#include "backends/python/step_process.h"

#include <lumen/base/clock.h>
#include <lumen/base/spawn.h>
#include <lumen/base/unique_fd.h>

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

namespace lumen::backends::python {
namespace {

namespace fs = std::filesystem;
using models::TensorSpec;

constexpr uint64_t kSecond = 1'000'000'000;
// An interpreter starts in 0.1 s; on a busy machine, from a cold disk, it may take many times that.
constexpr uint64_t kConnectNs = 60 * kSecond;
// The file's own statements may read weights.
constexpr uint64_t kLoadNs = 300 * kSecond;
// After its connection has ended the process ends by itself, unless its code runs.
constexpr uint64_t kEndNs = kSecond / 2;

// A folder that this user alone may enter, for the socket; gone with it.
class PrivateFolder {
 public:
  PrivateFolder() {
    std::error_code error;
    std::string pattern = fs::temp_directory_path(error) / "lumen-step-XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~PrivateFolder() {
    std::error_code ignored;  // the system empties its temporary folder
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  [[nodiscard]] const fs::path& path() const noexcept { return path_; }

 private:
  fs::path path_;
};

std::string shape_text(const Shape& shape) {
  std::string text;
  for (size_t axis = 0; axis < shape.rank(); ++axis) {
    text.append(axis > 0 ? "," : "").append(std::to_string(shape[axis]));
  }
  return text;
}

std::vector<std::string> words_for(const StepSource& source, const std::string& socket) {
  std::vector<std::string> words = {source.python.interpreter,
                                    "-m",
                                    "lumen_engine.step",
                                    fs::absolute(source.file),
                                    "--bus=" + socket,
                                    "--capacity=" + std::to_string(source.ring_bytes),
                                    "--model=" + source.metadata.name};
  const auto add = [&words](const char* flag, const std::vector<TensorSpec>& specs) {
    for (const TensorSpec& spec : specs) {
      // The name stands last: it may hold any character.
      words.push_back(std::string(flag) + std::string(element_type_name(spec.type)) + ":" +
                      shape_text(spec.shape) + ":" + spec.name);
    }
  };
  add("--input=", source.metadata.inputs);
  add("--output=", source.metadata.outputs);
  return words;
}

std::vector<std::string> environment_for(const StepSource& source) {
  std::vector<std::string> environment;
  std::string python_path = source.python.package_folder;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    constexpr std::string_view kPath = "PYTHONPATH=";
    if (!text.starts_with(kPath)) {
      environment.emplace_back(text);
      continue;
    }
    const std::string_view before = text.substr(kPath.size());
    if (!before.empty()) python_path.append(python_path.empty() ? "" : ":").append(before);
  }
  if (!python_path.empty()) environment.push_back("PYTHONPATH=" + python_path);
  return environment;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Result<std::unique_ptr<StepProcess>> StepProcess::start(const StepSource& source,
                                                        const std::atomic<bool>& stop) {
  const PrivateFolder folder;
  if (folder.path().empty()) {
    return Status::from_errno(errno, "making a folder for the socket of model '%s'",
                              source.metadata.name.c_str());
  }
  const std::string socket = folder.path() / "step";
  std::vector<std::string> words = words_for(source, socket);
  std::vector<std::string> environment = environment_for(source);
  const std::vector<char*> arguments = pointers_to(words);
  const std::vector<char*> variables = pointers_to(environment);
  const SpawnActions spawn;
  std::unique_ptr<StepProcess> process(new StepProcess);
  const int error = posix_spawnp(&process->pid_, arguments.front(), spawn.actions(),
                                 spawn.attributes(), arguments.data(), variables.data());
  if (error != 0) {
    process->has_ended_ = true;
    return Status::error(Code::kUnavailable,
                         "model '%s': its Python, %s, can't be run: %s; name another by --python",
                         source.metadata.name.c_str(), arguments.front(), std::strerror(error));
  }
  const auto with_model = [&source](const Status& status) {
    return Status::error(status.code(), "model '%s': %s", source.metadata.name.c_str(),
                         status.c_message());
  };
  if (Status status = process->connect(socket, stop); !status.ok()) return with_model(status);
  if (Status status = process->load(source); !status.ok()) return with_model(status);
  return process;
}

StepProcess::~StepProcess() {
  requester_.reset();
  if (has_ended_ || wait_for_end(kEndNs)) return;
  kill();
  (void)wait_for_end(UINT64_MAX);
}

void StepProcess::kill() noexcept {
  if (!has_ended()) ::kill(pid_, SIGKILL);
}

bool StepProcess::has_ended() noexcept {
  if (!has_ended_) has_ended_ = waitpid(pid_, &end_, WNOHANG) == pid_;
  return has_ended_;
}

bool StepProcess::wait_for_end(uint64_t timeout_ns) noexcept {
  const UniqueFd handle(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  const uint64_t now = now_ns();
  const uint64_t deadline_ns = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
  while (!has_ended()) {
    const uint64_t seen = now_ns();
    if (seen >= deadline_ns) return false;
    // A kernel without that call is asked ten times a second.
    const uint64_t most = handle.valid() ? kSecond : kSecond / 10;
    pollfd entry{handle.get(), POLLIN, 0};
    poll(&entry, handle.valid() ? 1 : 0,
         static_cast<int>(std::min(most, deadline_ns - seen) / 1'000'000 + 1));
  }
  return true;
}

std::string StepProcess::text_of_end() {
  if (!wait_for_end(kEndNs)) return "its connection has ended";
  return std::string("it ended ").append(lumen::text_of_end(end_));
}

Status StepProcess::connect(const std::string& path, const std::atomic<bool>& stop) {
  bus::ConnectOptions options;
  options.role = bus::Role::kBoth;
  options.deadline_ns = now_ns() + kConnectNs;
  options.wait_for_listener = true;
  options.listener_users = {geteuid()};
  // relaxed: nothing else is told by it
  options.goes_on = [&] { return !stop.load(std::memory_order_relaxed) && !has_ended(); };
  Result<bus::Connection> connection = bus::connect(path, options);
  if (has_ended()) {
    return Status::error(Code::kUnavailable,
                         "its Python process could not begin: %s; the log above has its words",
                         text_of_end().c_str());
  }
  if (!connection.ok()) return connection.status();
  requester_ = std::make_unique<bus::Requester>(std::move(*connection));
  return {};
}

Status StepProcess::load(const StepSource& source) {
  const bus::Requester::Reply reply =
      requester_->call({}, static_cast<uint32_t>(StepMessage::kLoad), now_ns() + kLoadNs);
  if (reply.outcome == bus::Outcome::kTimedOut) {
    return Status::error(Code::kUnavailable, "%s: its statements did not end within %d s",
                         source.file.c_str(), static_cast<int>(kLoadNs / kSecond));
  }
  if (reply.outcome != bus::Outcome::kOk) {
    return Status::error(Code::kUnavailable, "%s: %s; the log above has its words",
                         source.file.c_str(), text_of_end().c_str());
  }
  if (reply.status != static_cast<uint32_t>(StepStatus::kDone)) {
    const std::string words(reinterpret_cast<const char*>(reply.data.data()), reply.data.size());
    return Status::error(Code::kUnavailable, "%s: %s", source.file.c_str(), words.c_str());
  }
  requester_->release();
  return {};
}

}  // namespace lumen::backends::python
