// Both ends: the server's, which starts the process, and the process's own. One message a model
// over a socket that keeps messages apart; its answer is a byte. See the header.
#include "trial_process.h"

#include <lumen/backends/built_in.h>
#include <lumen/base/clock.h>
#include <lumen/base/spawn.h>
#include <lumen/models/execution_provider.h>

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace {

using Json = nlohmann::json;
using lumen::Code;
using lumen::Status;
using lumen::UniqueFd;
using lumen::models::DeviceOptions;
using lumen::models::ModelSource;

// The socket's descriptor in the process.
constexpr int kTrialSocket = 3;
// A path of 4 KiB of which each byte is escaped, two names and 32 batch sizes take less than half.
// A socket takes 208 KiB.
constexpr size_t kMaxMessageBytes = 64 * 1024;
// How soon a stop is seen.
constexpr int kLookMs = 50;

Json json_of(const DeviceOptions& device) {
  return {{"id", device.id ? Json(*device.id) : Json()},
          {"streams", device.streams},
          {"batch_sizes", device.batch_sizes},
          {"memory_mb", device.memory_mb}};
}

DeviceOptions device_of(const Json& json) {
  DeviceOptions device;
  if (!json.at("id").is_null()) device.id = json.at("id").get<uint32_t>();
  device.streams = json.at("streams");
  device.batch_sizes = json.at("batch_sizes").get<std::vector<uint32_t>>();
  device.memory_mb = json.at("memory_mb");
  return device;
}

// Of the options those that a backend reads.
std::string message_of(const ModelSource& source, std::string_view backend) {
  const Json json{{"name", source.name},
                  {"version", source.version},
                  {"file", source.file.string()},
                  {"backend", backend},
                  {"precision", static_cast<int>(source.options.precision)},
                  {"batch_sizes", source.options.batch_sizes},
                  {"shape_cache", source.options.shape_cache},
                  {"device", json_of(source.options.device)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ModelSource source_of(const Json& json) {
  ModelSource source;
  source.name = json.at("name");
  source.version = json.at("version");
  source.file = json.at("file").get<std::string>();
  source.options.precision = static_cast<lumen::models::Precision>(json.at("precision").get<int>());
  source.options.batch_sizes = json.at("batch_sizes").get<std::vector<uint32_t>>();
  source.options.shape_cache = json.at("shape_cache");
  source.options.device = device_of(json.at("device"));
  return source;
}

bool was_set(const std::atomic<bool>* stop) noexcept {
  return stop != nullptr &&
         stop->load(std::memory_order_relaxed);  // relaxed: nothing else is told by it
}

}  // namespace

int run_try_models(std::string_view execution_providers) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A crash is an answer here: no file is to be left of it.
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  (void)setrlimit(RLIMIT_CORE, &none);
  const auto providers = lumen::models::parse_execution_providers(execution_providers);
  if (!providers.ok()) return 1;
  const lumen::models::Backends backends(lumen::backends::with_devices(*providers));
  std::string message(kMaxMessageBytes, '\0');
  for (;;) {
    const ssize_t bytes = recv(kTrialSocket, message.data(), message.size(), 0);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) _exit(0);  // without the destructors of backends, which take their time
    const Json json = Json::parse(message.begin(), message.begin() + bytes);
    lumen::models::try_model(backends, json.at("backend").get<std::string>(), source_of(json));
    const char done = 1;
    if (send(kTrialSocket, &done, 1, MSG_NOSIGNAL) != 1) _exit(0);
  }
}

Status TrialProcess::start(const TrialProgram& program) {
  std::array<int, 2> ends{-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Status::from_errno(errno, "a socket for a process that tries models");
  }
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  const lumen::SpawnActions spawn(theirs.get(), kTrialSocket);
  std::string name = "lumen";
  std::string command(kTryModelsCommand);
  std::string providers = program.execution_providers;
  std::array<char*, 4> words{name.data(), command.data(), providers.data(), nullptr};
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.program.c_str(), spawn.actions(), spawn.attributes(),
                                words.data(), environ);
  if (error != 0) {
    return Status::from_errno(error, "starting %s to try models", program.program.c_str());
  }
  pid_ = pid;
  socket_ = std::move(ours);
  return {};
}

Status TrialProcess::send(std::string_view message) {
  const ssize_t sent = ::send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL);
  if (sent >= 0 || errno == EPIPE || errno == ECONNRESET) return {};
  return Status::from_errno(errno, "a message of %zu bytes to a process that tries models",
                            message.size());
}

TrialProcess::Answer TrialProcess::wait_for_answer(uint64_t most_ns,
                                                   const std::atomic<bool>* stop) {
  const uint64_t until_ns = lumen::now_ns() + most_ns;
  for (;;) {
    if (was_set(stop)) return Answer::kStopped;
    if (lumen::now_ns() >= until_ns) return Answer::kTooLate;
    pollfd wanted{socket_.get(), POLLIN, 0};
    if (poll(&wanted, 1, kLookMs) <= 0) continue;
    char done = 0;
    const ssize_t bytes = recv(socket_.get(), &done, 1, 0);
    if (bytes < 0 && errno == EINTR) continue;
    return bytes == 1 ? Answer::kDone : Answer::kEnded;
  }
}

int TrialProcess::reap() noexcept {
  socket_.reset();
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  return status;
}

void TrialProcess::end() noexcept {
  if (pid_ == 0) return;
  (void)kill(pid_, SIGKILL);
  (void)reap();
}

std::unique_ptr<TrialProcess> TrialProcesses::take() {
  const std::lock_guard lock(mutex_);
  if (has_failed_to_start_) return nullptr;
  if (!idle_.empty()) {
    std::unique_ptr<TrialProcess> process = std::move(idle_.back());
    idle_.pop_back();
    return process;
  }
  auto process = std::make_unique<TrialProcess>();
  if (const Status started = process->start(program_); !started.ok()) {
    has_failed_to_start_ = true;
    spdlog::warn("{}; models are loaded without a trial, and one that crashes ends the server",
                 started.message());
    return nullptr;
  }
  return process;
}

void TrialProcesses::give_back(std::unique_ptr<TrialProcess> process) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(process));
}

void TrialProcesses::end() noexcept {
  const std::lock_guard lock(mutex_);
  idle_.clear();
}

Status TrialProcesses::try_in_process(const ModelSource& source, std::string_view backend,
                                      const std::atomic<bool>* stop) {
  std::unique_ptr<TrialProcess> process = take();
  if (process == nullptr) return {};
  if (const Status sent = process->send(message_of(source, backend)); !sent.ok()) {
    spdlog::warn("model '{}' is loaded without a trial: {}", source.name, sent.message());
    return {};
  }
  switch (process->wait_for_answer(most_ns_, stop)) {
    case TrialProcess::Answer::kDone: give_back(std::move(process)); return {};
    case TrialProcess::Answer::kStopped:
      return Status::error(Code::kCancelled, "loading was stopped");
    case TrialProcess::Answer::kTooLate:
      return Status::error(Code::kUnavailable,
                           "did not load and run the model within %llu s, in a process that tries "
                           "models first",
                           static_cast<unsigned long long>(most_ns_ / 1'000'000'000));
    case TrialProcess::Answer::kEnded: break;
  }
  return Status::error(Code::kUnavailable, "ended the process in which models are tried first, %s",
                       lumen::text_of_end(process->reap()).c_str());
}
