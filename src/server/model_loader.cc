// See the header.
#include "server/model_loader.h"

#include "server/asked_by.h"
#include "server/job_json.h"

#include <lumen/base/clock.h>

#include <string_view>

namespace lumen::server {
namespace {

using nlohmann::json;

// "config" and "file:..." would replace the repository's own files.
Status check_load(std::string_view text) {
  const Result<json> body = parse_job(text, R"({"parameters": {}})");
  if (!body.ok()) return body.status();
  const auto parameters = body->find("parameters");
  if (parameters == body->end()) return {};
  if (!parameters->is_object()) {
    return Status::error(Code::kInvalidArgument, "parameters: got %s, wanted an object",
                         shown(*parameters).c_str());
  }
  for (const auto& [key, value] : parameters->items()) {
    if (key != "config" && !key.starts_with("file:")) continue;
    return Status::error(Code::kUnsupported,
                         "parameter %s: models are loaded as they lie in the repository; put the "
                         "file there",
                         shown(json(key)).c_str());
  }
  return {};
}

}  // namespace

ModelLoader::ModelLoader(service::Catalog& catalog, const models::ModelRepository& repository,
                         Report report, const ServerOptions& options)
    : catalog_(catalog),
      repository_(repository),
      report_(std::move(report)),
      control_(options.model_control),
      interval_ns_(options.poll_interval_ns) {
  if (control_ != ModelControl::kPoll) return;
  for (const service::CatalogModel& entry : catalog_.snapshot()->models) {
    const models::Model& model = *entry.model;
    taken_[model.metadata().name] += model.metadata().version + '\n' + model.stamp();
  }
  seen_ = taken_;
  next_look_ns_ = now_ns() + interval_ns_;
}

void ModelLoader::handle(service::Job& job) {
  job.status = change(job);
  const bool is_load = job.topic == service::Job::Topic::kLoadModel;
  std::string text = is_load ? "load of " : "unload of ";
  text.append(job.subject.substr(0, limits::kMaxNameBytes)).append(asked_by(job));
  report_(job.status.ok() ? LogLevel::kInfo : LogLevel::kWarn,
          job.status.ok() ? text : text.append(": ").append(job.status.message()));
  if (job.status.ok()) job.answer("{}");
}

Status ModelLoader::change(const service::Job& job) {
  if (control_ == ModelControl::kNone) {
    return Status::error(Code::kForbidden,
                         "this server loads models at its start only; start it with "
                         "--model-control explicit");
  }
  if (job.topic == service::Job::Topic::kUnloadModel) {
    const Result<json> body =
        parse_job(job.text, R"({"parameters": {"unload_dependents": false}})");
    return body.ok() ? catalog_.unload(job.subject) : body.status();
  }
  LUMEN_RETURN_IF_ERROR(check_load(job.text));
  return catalog_.reload(job.subject);
}

Result<ModelLoader::Stamps> ModelLoader::look() const {
  const auto found = repository_.on_disk();
  if (!found.ok()) return found.status();
  Stamps stamps;
  for (const auto& one : *found) stamps[one.name] += one.version + '\n' + one.stamp;
  return stamps;
}

// Files that still change, as those that are being copied, are left for the next look.
void ModelLoader::on_time() {
  const Result<Stamps> now = look();
  next_look_ns_ = now_ns() + interval_ns_;
  if (!now.ok()) {
    report_(LogLevel::kWarn, now.status().message());
    return;
  }
  const Stamps before = std::exchange(seen_, *now);
  for (const auto& [name, stamp] : *now) {
    const auto last = before.find(name);
    const bool is_still = last != before.end() && last->second == stamp;
    if (is_still && taken_[name] != stamp) {
      taken_[name] = stamp;
      load(name);
    }
  }
  for (auto taken = taken_.begin(); taken != taken_.end();) {
    const bool is_there = now->contains(taken->first) || before.contains(taken->first);
    if (!is_there && catalog_.unload(taken->first).ok()) {
      report_(LogLevel::kInfo, "model " + taken->first + " has left the repository: unloaded");
    }
    taken = is_there ? std::next(taken) : taken_.erase(taken);
  }
}

void ModelLoader::load(const std::string& name) {
  const Status status = catalog_.reload(name);
  std::string text = "model " + name + " has changed in the repository";
  report_(status.ok() ? LogLevel::kInfo : LogLevel::kWarn,
          status.ok() ? text.append(": loaded") : text.append(": ").append(status.message()));
}

}  // namespace lumen::server
