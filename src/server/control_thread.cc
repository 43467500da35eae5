// See the header for threads, memory and errors.
#include "server/control_thread.h"

#include "server/asked_by.h"

#include <lumen/base/cpu.h>
#include <lumen/server/settings.h>
#include <lumen/wire/json_text.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace lumen::server {
namespace {

using wire::json_text;
using wire::JsonWriter;

// The engine section as config.json has it, of the settings that can change while serving.
void write_engine(JsonWriter& json, const engine::EngineConfig& config) {
  ServerOptions options;
  options.engine = config;
  json.key("engine").begin_object();
  for (const Setting& setting : settings()) {
    if (setting.section != "engine" || setting.change != SettingChange::kLive) continue;
    json.key(setting.key);
    const std::string value = setting.get(options);
    setting.is_number ? json.raw(value) : json.string(value);
  }
  json.end_object();
}

// Of now_ns(), which is CLOCK_MONOTONIC as the steady clock is.
std::chrono::steady_clock::time_point time_point(uint64_t ns) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns));
}

// How many there are, on which threads, and the memory of one.
void write_instances(JsonWriter& json, const engine::Engine::Instances& instances) {
  json.key("instances").unsigned_integer(instances.count);
  json.key("instance_bytes").unsigned_integer(instances.bytes);
  json.key("instance_threads").begin_object();
  json.key("workers").unsigned_integer(instances.workers);
  json.key("express_workers").unsigned_integer(instances.express_workers);
  json.key("additional_workers").unsigned_integer(instances.express_workers);  // its name until 0.2
  json.key("io_threads").unsigned_integer(instances.io_threads);
  json.end_object();
}

// For each model the backend that serves it and why, or why none can, how its requests go and its
// memory.
void write_models(JsonWriter& json, const service::CatalogSnapshot& catalog,
                  const engine::Engine& engine) {
  json.key("models").begin_array();
  for (const service::CatalogModel& entry : catalog.models) {
    const models::Model& model = *entry.model;
    const bool is_ready = model.state() == models::ModelState::kReady;
    json.begin_object().key("name").string(model.metadata().name);
    json.key("version").string(model.metadata().version);
    json.key("backend").string(model.choice().backend);
    json.key("why").string(is_ready ? model.choice().why : model.reason());
    if (is_ready) {
      const engine::Engine::UsualLane lane = engine.usual_lane_of(model);
      json.key("lane").string(name_of(lane.queue_type)).key("lane_why").string(lane.why);
      json.key("weight").unsigned_integer(model.scheduling().weight);
      json.key("priority").unsigned_integer(model.scheduling().priority);
      json.key("workers").begin_array();
      for (const uint32_t worker : lane.workers) json.unsigned_integer(worker);
      json.end_array();
      write_instances(json, engine.instances_of(model));
    }
    json.end_object();
  }
  json.end_array();
}

}  // namespace

ControlThread::ControlThread(engine::Engine& engine, const service::Catalog& catalog,
                             service::RowSampler* sampler, const Report& report,
                             const ServerOptions& options)
    : engine_(engine),
      catalog_(catalog),
      report_(report),
      options_(options),
      recordings_(catalog, sampler, report),
      thread_([this] { run(); }) {}

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

void ControlThread::wait(std::unique_lock<std::mutex>& lock) {
  const auto is_ready = [this] { return stop_ || !jobs_.empty(); };
  while (!is_ready()) {
    const uint64_t expires_ns = recordings_.expires_ns();
    if (expires_ns == UINT64_MAX) {
      changed_.wait(lock, is_ready);
    } else if (!changed_.wait_until(lock, time_point(expires_ns), is_ready)) {
      lock.unlock();
      recordings_.expire();
      lock.lock();
    }
  }
}

void ControlThread::run() {
  name_this_thread("lumen-control");
  std::unique_lock lock(mutex_);
  for (;;) {
    wait(lock);
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
  std::string by = "POST /v2/lumen/engine" + asked_by(job);
  Status status = engine_.reconfigure(*config);
  if (status.ok()) {
    by.append(": ").append(json_text([this](JsonWriter& json) {
      json.begin_object();
      write_engine(json, engine_.config());
      json.end_object();
    }));
    report_(LogLevel::kInfo, by);
    const std::string note = overload_note(options_, engine_.config());
    if (!note.empty()) report_(LogLevel::kWarn, note);
  } else {
    report_(LogLevel::kError, by.append(": ").append(status.message()));
  }
  return status;
}

void ControlThread::tell(service::Job& job) {
  const std::shared_ptr<const service::CatalogSnapshot> catalog = catalog_.snapshot();
  job.answer(json_text([&](JsonWriter& json) {
    json.begin_object();
    write_engine(json, engine_.config());
    write_models(json, *catalog, engine_);
    json.end_object();
  }));
}

void ControlThread::handle_engine(service::Job& job) {
  if (!job.text.empty()) job.status = change(job);
  if (job.status.ok()) tell(job);
}

void ControlThread::handle(service::Job& job) {
  switch (job.topic) {
    case service::Job::Topic::kEngine: handle_engine(job); break;
    case service::Job::Topic::kRecording: recordings_.handle(job); break;
  }
  job.owner->on_done(job);
}

}  // namespace lumen::server
