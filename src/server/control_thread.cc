// See the header for threads, memory and errors.
#include "server/control_thread.h"

#include <lumen/base/cpu.h>
#include <lumen/server/settings.h>
#include <lumen/wire/json_writer.h>

#include <array>
#include <span>
#include <string>
#include <utility>

namespace lumen::server {
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

void ControlThread::submit(service::Job& job) noexcept {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(&job);
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
    service::Job& job = *jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    handle(job);
    lock.lock();
  }
}

Status ControlThread::change(const service::Job& job) {
  const auto config = parse_engine_section(job.text, engine_.config());
  if (!config.ok()) return config.status();
  std::string by = "POST /v2/lumen/engine";
  if (job.by) {
    by.append(" by pid ").append(std::to_string(job.by->pid));
    by.append(", uid ").append(std::to_string(job.by->uid));
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

void ControlThread::handle(service::Job& job) {
  if (!job.text.empty()) job.status = change(job);
  if (job.status.ok()) {
    const std::span<char> room = job.memory->allocate_array<char>(kDocumentBytes);
    job.document = write_engine(engine_.config(), room);
  }
  job.owner->on_done(job);
}

}  // namespace lumen::server
