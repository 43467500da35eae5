// See the header.
#include "server/model_loader.h"

#include "server/asked_by.h"
#include "server/job_json.h"

#include <lumen/base/clock.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace lumen::server {
namespace {

using nlohmann::json;

Result<json> parameters_of(const json& body) {
  const auto parameters = body.find("parameters");
  if (parameters == body.end()) return json::object();
  if (parameters->is_object()) return *parameters;
  return Status::error(Code::kInvalidArgument, "parameters: got %s, wanted an object",
                       shown(*parameters).c_str());
}

// No model depends on another, so either value is right.
Status check_unload(std::string_view text) {
  const Result<json> body = parse_job(text, R"({"parameters": {"unload_dependents": false}})");
  if (!body.ok()) return body.status();
  const Result<json> parameters = parameters_of(*body);
  if (!parameters.ok()) return parameters.status();
  const auto dependents = parameters->find("unload_dependents");
  if (dependents == parameters->end() || dependents->is_boolean()) return {};
  return Status::error(Code::kInvalidArgument, "unload_dependents: got %s, wanted true or false",
                       shown(*dependents).c_str());
}

// The configuration that a load call brings along, as the text of a config.json.
Result<std::optional<std::string>> config_of(const json& parameters) {
  const auto found = parameters.find("config");
  if (found == parameters.end()) return std::optional<std::string>();
  if (!found->is_string()) {
    return Status::error(Code::kInvalidArgument,
                         "config: got %s, wanted the text of a config.json, as a string",
                         shown(*found).c_str());
  }
  std::optional<std::string> config = found->get<std::string>();
  LUMEN_RETURN_IF_ERROR(models::ModelRepository::check_config(*config));
  return config;
}

// nullptr: the call brings none along.
Result<std::unique_ptr<CallFiles>> files_of(std::string_view model, const json& parameters,
                                            bool takes_files, bool has_config) {
  const std::string first = CallFiles::first_key(parameters);
  if (first.empty()) return std::unique_ptr<CallFiles>();
  if (!takes_files) {
    return Status::error(Code::kUnsupported,
                         "parameter %s: this server loads files as they lie in the repository; put "
                         "the file there, or start the server with --load-files on",
                         shown(json(first)).c_str());
  }
  if (!has_config) {
    return Status::error(Code::kInvalidArgument,
                         "parameter %s: files come with a configuration; send \"config\", \"{}\" "
                         "at least",
                         shown(json(first)).c_str());
  }
  return CallFiles::write(model, parameters);
}

}  // namespace

ModelLoader::ModelLoader(service::Catalog& catalog, models::ModelRepository& repository,
                         Report report, const ServerOptions& options)
    : catalog_(catalog),
      repository_(repository),
      report_(std::move(report)),
      control_(options.model_control),
      takes_files_(options.load_files),
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
    LUMEN_RETURN_IF_ERROR(check_unload(job.text));
    return unload(std::string(job.subject));
  }
  // With files a body is as large as the server takes them.
  const size_t most_bytes = takes_files_ ? SIZE_MAX : kMaxJobBytes;
  const Result<json> body = parse_job(job.text, R"({"parameters": {"config": "{}"}})", most_bytes);
  if (!body.ok()) return body.status();
  const Result<json> parameters = parameters_of(*body);
  if (!parameters.ok()) return parameters.status();
  const auto config = config_of(*parameters);
  if (!config.ok()) return config.status();
  auto files = files_of(job.subject, *parameters, takes_files_, config->has_value());
  if (!files.ok()) return files.status();
  return reload(std::string(job.subject), config->has_value() ? &**config : nullptr,
                std::move(*files));
}

Status ModelLoader::reload(const std::string& name, const std::string* config,
                           std::unique_ptr<CallFiles> files) {
  const auto read_from = [&](const CallFiles* source) {
    repository_.read_from(name, source == nullptr ? std::filesystem::path() : source->repository());
  };
  read_from(files.get());
  Status status = catalog_.reload(name, config);
  Kept& kept = files_[name];
  if (status.ok()) {
    kept.counted = std::move(files);
    kept.in_use.clear();
  } else {
    // Instances of these are made later, too.
    auto versions = repository_.on_disk(name, config);
    if (files != nullptr && versions.ok()) {
      kept.in_use.emplace_back(std::move(files), *std::move(versions));
    }
    std::erase_if(kept.in_use, [&](const auto& one) { return !is_served(one.second); });
    read_from(kept.counted.get());
  }
  if (kept.counted == nullptr && kept.in_use.empty()) files_.erase(name);
  return status;
}

bool ModelLoader::is_served(const Versions& versions) const {
  const std::shared_ptr<const service::CatalogSnapshot> catalog = catalog_.snapshot();
  return std::ranges::any_of(versions, [&](const models::ModelRepository::OnDisk& one) {
    const service::CatalogModel* const entry = catalog->find(one.name, one.version);
    return entry != nullptr && entry->model->stamp() == one.stamp &&
           entry->model->state() == models::ModelState::kReady;
  });
}

Status ModelLoader::unload(const std::string& name) {
  Status status = catalog_.unload(name);
  if (status.ok()) {
    repository_.read_from(name, {});
    files_.erase(name);
  }
  return status;
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
  // Once, not at each look.
  const std::string problem(now.status().message());
  if (problem != std::exchange(problem_, problem) && !now.ok()) {
    report_(LogLevel::kWarn, problem + "; the models that are loaded are served on");
  }
  if (!now.ok()) return;
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
    if (!is_there && unload(taken->first).ok()) {
      report_(LogLevel::kInfo, "model " + taken->first + " has left the repository: unloaded");
    }
    taken = is_there ? std::next(taken) : taken_.erase(taken);
  }
}

void ModelLoader::load(const std::string& name) {
  const Status status = reload(name, nullptr, nullptr);
  std::string text = "model " + name + " has changed in the repository";
  report_(status.ok() ? LogLevel::kInfo : LogLevel::kWarn,
          status.ok() ? text.append(": loaded") : text.append(": ").append(status.message()));
}

}  // namespace lumen::server
