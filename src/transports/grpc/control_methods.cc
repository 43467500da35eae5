// See the header.
#include "transports/grpc/control_methods.h"

#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/json_util.h>
#include <grpc_service.pb.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <climits>
#include <new>
#include <string>
#include <utility>

namespace lumen::grpc {
namespace {

using nlohmann::json;
using Topic = service::Job::Topic;
using transports::Audience;

// The names and the JSON of a job, from its message.
struct Asked {
  std::string subject;
  std::string version;
  json body;  // null: none
};

std::string_view copied(Allocator& memory, std::string_view text) {
  const std::span<char> room = memory.allocate_array<char>(text.size());
  if (room.size() != text.size()) throw std::bad_alloc();
  return {room.data(), text.copy(room.data(), text.size())};
}

Status no_json(std::string_view why) {
  return Status::error(Code::kInternal, "the answer does not fit its message: %.*s",
                       static_cast<int>(std::min<size_t>(why.size(), 200)), why.data());
}

// A pair of messages, and the two functions between them and JSON; without the second the reply has
// no field.
template <typename Request, typename Reply, Asked (*Read)(const Request&),
          json (*Write)(json) = nullptr>
class Form final : public service::JobForm {
 public:
  Status read(service::Job& job) const override {
    // A client's broken text would be a line on stderr, as often as it likes.
    const google::protobuf::LogSilencer quiet;
    Request message;
    const bool is_read = job.text.size() <= INT_MAX &&
                         message.ParseFromArray(job.text.data(), static_cast<int>(job.text.size()));
    if (!is_read) {
      return Status::error(Code::kInvalidArgument, "the message is no valid protobuf of %s",
                           message.GetTypeName().c_str());
    }
    const Asked asked = Read(message);
    job.subject = copied(*job.memory, asked.subject);
    job.version = copied(*job.memory, asked.version);
    job.text = asked.body.is_null() ? std::string_view() : copied(*job.memory, asked.body.dump());
    return {};
  }

  Status write(service::Job& job) const override {
    if constexpr (Write == nullptr) {
      job.document = {};
      return {};
    } else {
      return write_message(job);
    }
  }

 private:
  static Status write_message(service::Job& job) {
    const json document = Write(json::parse(job.document));
    google::protobuf::util::JsonParseOptions options;
    options.ignore_unknown_fields = true;
    Reply message;
    const auto parsed =
        google::protobuf::util::JsonStringToMessage(document.dump(), &message, options);
    if (!parsed.ok()) return no_json(parsed.message().ToString());
    job.answer(message.SerializeAsString());
    return job.status;
  }
};

// --- of requests ---------------------------------------------------------------------------------

template <typename Request>
Asked named(const Request& request) {
  return {.subject = request.name(), .version = {}, .body = {}};
}

template <typename Request>
Asked of_version(const Request& request) {
  return {.subject = request.name(), .version = request.version(), .body = {}};
}

Asked index(const inference::RepositoryIndexRequest& request) {
  json body = json::object();
  body["ready"] = request.ready();
  return {.subject = {}, .version = {}, .body = std::move(body)};
}

// Files are base64 in JSON, and protobuf's library writes them so.
json parameter_of(const inference::ModelRepositoryParameter& one) {
  switch (one.parameter_choice_case()) {
    case inference::ModelRepositoryParameter::kBoolParam: return one.bool_param();
    case inference::ModelRepositoryParameter::kInt64Param: return one.int64_param();
    case inference::ModelRepositoryParameter::kStringParam: return one.string_param();
    case inference::ModelRepositoryParameter::kBytesParam: {
      std::string text;
      (void)google::protobuf::util::MessageToJsonString(one, &text);
      return json::parse(text).at("bytesParam");
    }
    default: return nullptr;
  }
}

template <typename Request>
Asked change_of_model(const Request& request) {
  json body = json::object();
  json& parameters = body["parameters"] = json::object();
  for (const auto& [key, value] : request.parameters()) parameters[key] = parameter_of(value);
  return {.subject = request.model_name(), .version = {}, .body = std::move(body)};
}

Asked registration(const inference::SystemSharedMemoryRegisterRequest& request) {
  json body = json::object();
  body["key"] = request.key();
  body["offset"] = request.offset();
  body["byte_size"] = request.byte_size();
  return {.subject = request.name(), .version = {}, .body = std::move(body)};
}

// A setting without a value is set back.
Asked trace(const inference::TraceSettingRequest& request) {
  json body = json::object();
  for (const auto& [key, setting] : request.settings()) {
    json& value = body[key];
    if (key == "trace_level" && setting.value_size() > 0) {
      value = std::vector<std::string>(setting.value().begin(), setting.value().end());
    } else if (setting.value_size() > 0) {
      value = setting.value(0);
    }
  }
  return {.subject = request.model_name(), .version = {}, .body = std::move(body)};
}

Asked logging(const inference::LogSettingsRequest& request) {
  using Value = inference::LogSettingsRequest::SettingValue;
  json body = json::object();
  for (const auto& [key, setting] : request.settings()) {
    json& value = body[key];
    switch (setting.parameter_choice_case()) {
      case Value::kBoolParam: value = setting.bool_param(); break;
      case Value::kUint32Param: value = setting.uint32_param(); break;
      case Value::kStringParam: value = setting.string_param(); break;
      default: break;
    }
  }
  return {.subject = {}, .version = {}, .body = std::move(body)};
}

// --- of replies ----------------------------------------------------------------------------------

json as_it_is(json document) { return document; }

json in(const char* field, json document) {
  json message = json::object();
  message[field] = std::move(document);
  return message;
}

json config(json document) { return in("config", std::move(document)); }

json models(json document) { return in("models", std::move(document)); }

json regions(json document) {
  json all = json::object();
  for (json& region : document) all[region.at("name").get<std::string>()] = region;
  return in("regions", std::move(all));
}

json trace_settings(json document) {
  json all = json::object();
  for (const auto& [key, value] : document.items()) {
    json list = json::array();
    if (value.is_array()) {
      list = value;
    } else {
      list.push_back(value);
    }
    all[key] = in("value", std::move(list));
  }
  return in("settings", std::move(all));
}

json log_settings(json document) {
  json all = json::object();
  for (const auto& [key, value] : document.items()) {
    all[key] = in(value.is_boolean()  ? "bool_param"
                  : value.is_string() ? "string_param"
                                      : "uint32_param",
                  value);
  }
  return in("settings", std::move(all));
}

// --- all of them ---------------------------------------------------------------------------------

using namespace inference;

const Form<ModelConfigRequest, ModelConfigResponse, of_version<ModelConfigRequest>, config>
    kModelConfig;
const Form<ModelStatisticsRequest, ModelStatisticsResponse, of_version<ModelStatisticsRequest>,
           as_it_is>
    kModelStatistics;
const Form<RepositoryIndexRequest, RepositoryIndexResponse, index, models> kRepositoryIndex;
const Form<RepositoryModelLoadRequest, RepositoryModelLoadResponse,
           change_of_model<RepositoryModelLoadRequest>>
    kRepositoryModelLoad;
const Form<RepositoryModelUnloadRequest, RepositoryModelUnloadResponse,
           change_of_model<RepositoryModelUnloadRequest>>
    kRepositoryModelUnload;
const Form<SystemSharedMemoryStatusRequest, SystemSharedMemoryStatusResponse,
           named<SystemSharedMemoryStatusRequest>, regions>
    kRegionStatus;
const Form<SystemSharedMemoryRegisterRequest, SystemSharedMemoryRegisterResponse, registration>
    kRegionRegister;
const Form<SystemSharedMemoryUnregisterRequest, SystemSharedMemoryUnregisterResponse,
           named<SystemSharedMemoryUnregisterRequest>>
    kRegionUnregister;
const Form<TraceSettingRequest, TraceSettingResponse, trace, trace_settings> kTraceSetting;
const Form<LogSettingsRequest, LogSettingsResponse, logging, log_settings> kLogSettings;

const ControlMethod kMethods[] = {
    {Method::kModelConfig, Topic::kModelConfig, Audience::kAll, kModelConfig},
    {Method::kModelStatistics, Topic::kStatistics, Audience::kAll, kModelStatistics},
    {Method::kRepositoryIndex, Topic::kRepositoryIndex, Audience::kAll, kRepositoryIndex},
    {Method::kRepositoryModelLoad, Topic::kLoadModel, Audience::kControl, kRepositoryModelLoad},
    {Method::kRepositoryModelUnload, Topic::kUnloadModel, Audience::kControl,
     kRepositoryModelUnload},
    {Method::kRegionStatus, Topic::kRegions, Audience::kSharedMemory, kRegionStatus},
    {Method::kRegionRegister, Topic::kRegisterRegion, Audience::kSharedMemory, kRegionRegister},
    {Method::kRegionUnregister, Topic::kUnregisterRegion, Audience::kSharedMemory,
     kRegionUnregister},
    {Method::kTraceSetting, Topic::kTrace, Audience::kControl, kTraceSetting},
    {Method::kLogSettings, Topic::kLogging, Audience::kControl, kLogSettings},
};

}  // namespace

const ControlMethod* find_control_method(Method method) noexcept {
  const auto found = std::ranges::find(kMethods, method, &ControlMethod::method);
  return found == std::end(kMethods) ? nullptr : &*found;
}

}  // namespace lumen::grpc
