// See the header.
#include "server/log_settings.h"

#include "server/asked_by.h"
#include "server/job_json.h"

#include <string>
#include <utility>

namespace lumen::server {
namespace {

using nlohmann::json;

constexpr const char* kWanted = R"({"log_info": true, "log_warning": true, "log_error": true})";
// Parsed: a list of initializers ends the process where no memory is left (nlohmann's json_ref is
// noexcept). A line begins with the time as ISO 8601 has it.
const json& fixed() {
  static const json settings =
      json::parse(R"({"log_file": "", "log_verbose_level": 0, "log_format": "ISO8601"})");
  return settings;
}

const json& no_trace() {
  static const json settings = json::parse(
      R"({"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1",
          "log_frequency": "0", "trace_file": "", "trace_mode": "triton"})");
  return settings;
}

// A setting may come as a text, a number or a list of one text; null sets it back.
bool is_same_trace(const std::string& key, const json& value) {
  if (value.is_null()) return true;
  const json& now = no_trace().at(key);
  if (value == now) return true;
  if (now.is_array()) return value == now[0];
  return value.is_number_integer() && now == value.dump();
}

}  // namespace

bool LogSettings::has(LogLevel level) const noexcept {
  // relaxed, all three: see the members
  switch (level) {
    case LogLevel::kWarn: return warning_.load(std::memory_order_relaxed);
    case LogLevel::kError: return error_.load(std::memory_order_relaxed);
    default: return info_.load(std::memory_order_relaxed);
  }
}

Report LogSettings::report() {
  return [this](LogLevel level, std::string_view text) {
    if (has(level)) report_(level, text);
  };
}

void LogSettings::handle(service::Job& job) {
  const Result<json> body = parse_job(job.text, kWanted);
  job.status = body.status();
  if (!body.ok()) return;
  bool info = has(LogLevel::kInfo);
  bool warning = has(LogLevel::kWarn);
  bool error = has(LogLevel::kError);
  for (const auto& [key, value] : body->items()) {
    bool* const flag = key == "log_info"      ? &info
                       : key == "log_warning" ? &warning
                       : key == "log_error"   ? &error
                                              : nullptr;
    if (flag != nullptr && value.is_boolean()) {
      *flag = value.get<bool>();
    } else if (flag != nullptr) {
      job.status = Status::error(Code::kInvalidArgument, "%s: got %s, wanted true or false",
                                 key.c_str(), shown(value).c_str());
    } else if (!fixed().contains(key)) {
      job.status = Status::error(Code::kInvalidArgument, "unknown key %s; wanted keys of %s",
                                 shown(json(key)).c_str(), kWanted);
    } else if (value != fixed().at(key)) {
      job.status =
          Status::error(Code::kInvalidArgument,
                        "%s: got %s; this server has %s alone: it logs to stderr, with ISO 8601 "
                        "times; --log-level debug logs more",
                        key.c_str(), shown(value).c_str(), shown(fixed().at(key)).c_str());
    }
    if (!job.status.ok()) return;
  }
  if (!body->empty())
    report_(LogLevel::kInfo, "POST /v2/logging" + asked_by(job) + ": " + shown(*body));
  // relaxed, all three: see the members
  info_.store(info, std::memory_order_relaxed);
  warning_.store(warning, std::memory_order_relaxed);
  error_.store(error, std::memory_order_relaxed);
  json now = fixed();
  now["log_info"] = info;
  now["log_warning"] = warning;
  now["log_error"] = error;
  job.answer(now.dump());
}

void answer_trace(const service::CatalogSnapshot& catalog, service::Job& job) {
  if (!job.subject.empty() && catalog.find(job.subject, {}) == nullptr) {
    job.status = service::model_not_found(job.subject, {});
    return;
  }
  const Result<json> body = parse_job(job.text, R"({"trace_level": ["OFF"]})");
  job.status = body.status();
  if (!body.ok()) return;
  for (const auto& [key, value] : body->items()) {
    if (!no_trace().contains(key)) {
      job.status = Status::error(Code::kInvalidArgument, "unknown trace setting %s",
                                 shown(json(key)).c_str());
      return;
    }
    if (is_same_trace(key, value)) continue;
    job.status = Status::error(Code::kUnsupported,
                               "%s: got %s; this server writes no traces in Triton's form: "
                               "--telemetry-csv writes a line for each request, lumen slow shows "
                               "the slowest",
                               key.c_str(), shown(value).c_str());
    return;
  }
  job.answer(no_trace().dump());
}

}  // namespace lumen::server
