// See the header for threads, memory and errors.
#include "server/control.h"

#include "server/asked_by.h"
#include "server/repository_index.h"

#include <lumen/base/cpu.h>
#include <lumen/server/settings.h>
#include <lumen/service/documents.h>
#include <lumen/wire/json_text.h>

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

Control::Control(engine::Engine& engine, service::Catalog& catalog,
                 const models::ModelRepository& repository, service::RowSampler* sampler,
                 LogSettings& log, const ServerOptions& options)
    : engine_(engine),
      catalog_(catalog),
      repository_(repository),
      log_(log),
      report_(log.report()),
      options_(options),
      recordings_(catalog, sampler, report_),
      regions_(catalog, report_, options) {}

Status Control::change(const service::Job& job) {
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

void Control::tell(service::Job& job) {
  const std::shared_ptr<const service::CatalogSnapshot> catalog = catalog_.snapshot();
  job.answer(json_text([&](JsonWriter& json) {
    json.begin_object();
    write_engine(json, engine_.config());
    write_models(json, *catalog, engine_);
    json.end_object();
  }));
}

void Control::handle_engine(service::Job& job) {
  if (!job.text.empty()) job.status = change(job);
  if (job.status.ok()) tell(job);
}

Status Control::tell_of_models(service::Job& job) const {
  const std::shared_ptr<const service::CatalogSnapshot> catalog = catalog_.snapshot();
  const models::Model* only = nullptr;
  if (!job.subject.empty() || job.topic == service::Job::Topic::kModelConfig) {
    const service::CatalogModel* const entry = catalog->find(job.subject, job.version);
    if (entry == nullptr) return service::model_not_found(job.subject, job.version);
    only = entry->model.get();
    if (only->state() != models::ModelState::kReady) return service::model_unavailable(*only);
    if (job.topic == service::Job::Topic::kModelConfig) {
      job.answer(entry->documents->config);
      return job.status;
    }
  }
  std::string text(service::Documents::statistics_bytes(catalog->models.size()), '\0');
  job.answer(service::Documents::write_statistics(text, *catalog, only));
  return job.status;
}

void Control::handle(service::Job& job) {
  using Topic = service::Job::Topic;
  switch (job.topic) {
    case Topic::kEngine: return handle_engine(job);
    case Topic::kRecording: return recordings_.handle(job);
    case Topic::kRepositoryIndex: return answer_index(repository_, *catalog_.snapshot(), job);
    case Topic::kRegions:
    case Topic::kRegisterRegion:
    case Topic::kUnregisterRegion: return regions_.handle(job);
    case Topic::kTrace: return answer_trace(*catalog_.snapshot(), job);
    case Topic::kLogging: return log_.handle(job);
    case Topic::kModelConfig:
    case Topic::kStatistics: job.status = tell_of_models(job); return;
    case Topic::kLoadModel:
    case Topic::kUnloadModel: break;  // the loader's
  }
  job.status = Status::error(Code::kInternal, "this thread does not load models");
}

}  // namespace lumen::server
