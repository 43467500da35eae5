// See the header.
#include "server/repository_index.h"

#include "server/job_json.h"

#include <lumen/wire/json_text.h>

#include <algorithm>
#include <string_view>

namespace lumen::server {
namespace {

using wire::JsonWriter;

void write_entry(JsonWriter& json, std::string_view name, std::string_view version,
                 std::string_view state, std::string_view reason) {
  json.begin_object().key("name").string(name).key("version").string(version);
  json.key("state").string(state).key("reason").string(reason).end_object();
}

}  // namespace

void answer_index(const models::ModelRepository& repository,
                  const service::CatalogSnapshot& catalog, service::Job& job) {
  const Result<nlohmann::json> body = parse_job(job.text, R"({"ready": true})");
  job.status = body.status();
  if (!body.ok()) return;
  const nlohmann::json only_ready = body->value("ready", nlohmann::json(false));
  if (!only_ready.is_boolean()) {
    job.status = Status::error(Code::kInvalidArgument, "ready: got %s, wanted true or false",
                               shown(only_ready).c_str());
    return;
  }
  const auto on_disk = repository.on_disk();
  if (!on_disk.ok()) {
    job.status = on_disk.status();
    return;
  }
  job.answer(wire::json_text([&](JsonWriter& json) {
    json.begin_array();
    for (const service::CatalogModel& entry : catalog.models) {
      const models::Model& model = *entry.model;
      const bool is_ready = model.state() == models::ModelState::kReady;
      if (only_ready == true && !is_ready) continue;
      write_entry(json, model.metadata().name, model.metadata().version,
                  is_ready ? "READY" : "UNAVAILABLE", is_ready ? "" : model.reason());
    }
    for (const auto& one : *on_disk) {
      const bool is_served = std::ranges::any_of(catalog.models, [&](const auto& entry) {
        const models::ModelMetadata& metadata = entry.model->metadata();
        return metadata.name == one.name && metadata.version == one.version;
      });
      if (is_served || only_ready == true) continue;
      write_entry(json, one.name, one.version, "UNAVAILABLE", "not loaded");
    }
    json.end_array();
  }));
}

}  // namespace lumen::server
