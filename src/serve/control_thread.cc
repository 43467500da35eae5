// See the header for threads, memory and refusals.
#include "serve/control_thread.h"

#include "serve/io_thread.h"

#include <lumen/base/cpu.h>
#include <lumen/serve/settings.h>
#include <lumen/wire/json_writer.h>

#include <array>
#include <span>
#include <string>
#include <utility>

namespace lumen::serve {
namespace {

constexpr size_t kDocumentBytes = 1024;

// The engine section as config.json has it, of what can change while serving.
std::string_view write_engine(const engine::EngineConfig& config, std::span<char> out) {
  ServerOptions options;
  options.engine = config;
  wire::JsonWriter json(out);
  json.begin_object().key("engine").begin_object();
  for (const Setting& setting : settings()) {
    if (setting.section != "engine" || setting.change != SettingChange::kLive) continue;
    json.key(setting.key);
    const std::string value = setting.get(options);
    setting.is_number ? json.raw(value) : json.string(value);
  }
  json.end_object().end_object();
  return json.text();
}

}  // namespace

ControlThread::ControlThread(engine::Engine& engine, Report report, const ServerOptions& options)
    : engine_(engine), report_(std::move(report)), options_(options), thread_([this] { run(); }) {}

void ControlThread::submit(RequestContext& context, std::string_view body,
                           std::optional<net::PeerCredentials> peer) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({&context, body, peer});
  }
  changed_.notify_one();
}

void ControlThread::join() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void ControlThread::run() {
  name_this_thread("lumen-control");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    handle(job);
    lock.lock();
  }
}

Status ControlThread::change(const Job& job) {
  const auto config = parse_engine_section(job.body, engine_.config());
  if (!config.ok()) return config.status();
  std::string by = "POST /v2/lumen/engine";
  if (job.peer) {
    by.append(" by pid ").append(std::to_string(job.peer->pid));
    by.append(", uid ").append(std::to_string(job.peer->uid));
  }
  const Status status = engine_.reconfigure(*config);
  std::array<char, kDocumentBytes> room;
  if (status.ok()) {
    report_(LogLevel::kInfo, by.append(": ").append(write_engine(engine_.config(), room)));
    const std::string note = overload_note(options_, engine_.config());
    if (!note.empty()) report_(LogLevel::kWarn, note);
  } else {
    report_(LogLevel::kError, by.append(": ").append(status.message()));
  }
  return status;
}

void ControlThread::handle(const Job& job) {
  RequestContext& context = *job.context;
  if (!job.body.empty()) context.call.infer.status = change(job);
  if (context.call.infer.status.ok()) {
    const std::span<char> room = context.memory.allocate_array<char>(kDocumentBytes);
    context.document = write_engine(engine_.config(), room);
  }
  IoThread& io = *context.io_thread;
  io.post(context);
  io.flush();
}

}  // namespace lumen::serve
