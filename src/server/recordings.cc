// See the header for threads, memory and errors.
#include "server/recordings.h"

#include "server/asked_by.h"

#include <lumen/base/clock.h>
#include <lumen/wire/json_text.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace lumen::server {
namespace {

using nlohmann::json;
using wire::json_text;
using wire::JsonWriter;

// The longest body with every key in it is under 1 KiB.
constexpr size_t kMaxBodyBytes = 64 * 1024;
constexpr std::array<std::string_view, 4> kActions = {"begin", "end", "row", "drop"};
constexpr const char* kWanted =
    R"(wanted {"action": "begin", "model": "NAME", "rows": 500}, {"action": "row", "number": 0}, )"
    R"({"action": "end"} or {"action": "drop"})";

// `got` is cut to a length that fits a message.
Status refused(const std::string& got) {
  constexpr size_t kMostShown = 60;
  return Status::error(Code::kInvalidArgument, "body: got %s; %s",
                       got.substr(0, kMostShown).c_str(), kWanted);
}

Status read_text(const std::string& key, const json& value, std::string& text) {
  if (!value.is_string()) return refused("a \"" + key + "\" that is no string");
  text = value.get<std::string>();
  return {};
}

Status read_number(const std::string& key, const json& value, uint32_t& number) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > UINT32_MAX) {
    return refused("\"" + key +
                   "\": " + (value.is_primitive() ? value.dump() : "a list or object") +
                   ", no whole number up to 4294967295");
  }
  number = value.get<uint32_t>();
  return {};
}

}  // namespace

struct Recordings::Request {
  std::string action;
  std::string model;
  std::string version;
  uint32_t rows = 0;
  uint32_t number = 0;

  [[nodiscard]] static Result<Request> parse(std::string_view text) {
    if (text.size() > kMaxBodyBytes) {
      return Status::error(Code::kTooLarge, "body: got %zu bytes, wanted %zu at most", text.size(),
                           kMaxBodyBytes);
    }
    const json body = json::parse(text, nullptr, false);
    if (!body.is_object()) return refused("no JSON object");
    Request request;
    for (const auto& [key, value] : body.items()) {
      Status status = key == "action"    ? read_text(key, value, request.action)
                      : key == "model"   ? read_text(key, value, request.model)
                      : key == "version" ? read_text(key, value, request.version)
                      : key == "rows"    ? read_number(key, value, request.rows)
                      : key == "number"  ? read_number(key, value, request.number)
                                         : refused("the key " + json(key).dump());
      if (!status.ok()) return status;
    }
    if (std::ranges::find(kActions, request.action) == kActions.end()) {
      return refused("the action " + json(request.action).dump());
    }
    return request;
  }
};

Recordings::Recordings(const service::Catalog& catalog, service::RowSampler* sampler, Report report)
    : catalog_(catalog), sampler_(sampler), report_(std::move(report)) {}

void Recordings::handle(service::Job& job) {
  if (sampler_ == nullptr) {
    job.status =
        Status::error(Code::kForbidden,
                      "this server's settings do not allow recordings; start it with "
                      "--recording on, or \"recording\": \"on\" in the section \"server\"");
    report_(LogLevel::kWarn, "a recording was refused" + asked_by(job) + ": recording is off");
    return;
  }
  job.status = answer(job);
  if (sampler_->model() != nullptr) expires_ns_ = now_ns() + kKeepNs;
}

Status Recordings::answer(service::Job& job) {
  if (!job.text.empty()) {
    const Result<Request> request = Request::parse(job.text);
    if (!request.ok()) return request.status();
    if (request->action == "row") return answer_row(request->number, job);
    if (request->action == "begin") LUMEN_RETURN_IF_ERROR(begin(*request, job));
    if (request->action == "end") end();
    if (request->action == "drop") drop();
  }
  job.answer(state());
  return job.status;
}

Status Recordings::begin(const Request& request, const service::Job& job) {
  const std::shared_ptr<const service::CatalogSnapshot> catalog = catalog_.snapshot();
  const service::CatalogModel* found = catalog->find(request.model, request.version);
  if (found == nullptr) return service::model_not_found(request.model, request.version);
  const models::Model& model = *found->model;
  if (model.state() != models::ModelState::kReady) return service::model_unavailable(model);
  LUMEN_RETURN_IF_ERROR(sampler_->begin(found->model, request.rows));
  rows_ = request.rows;
  name_ = model.metadata().name + "/" + model.metadata().version;
  report_(LogLevel::kInfo, "recording up to " + std::to_string(rows_) +
                               " rows that clients send for " + name_ + asked_by(job) + ": " +
                               std::to_string(sampler_->count().bytes) + " bytes reserved");
  return {};
}

void Recordings::end() {
  if (sampler_->model() == nullptr || sampler_->has_ended()) return;
  sampler_->end();
  const service::RowSampler::Count count = sampler_->count();
  report_(LogLevel::kInfo, "recording of " + name_ + " ended: " + std::to_string(count.kept) +
                               " of " + std::to_string(count.seen) + " rows kept");
}

void Recordings::drop() {
  end();
  sampler_->drop();
  expires_ns_ = UINT64_MAX;
}

void Recordings::expire() {
  if (now_ns() < expires_ns_) return;
  report_(LogLevel::kWarn, "the client that recorded " + name_ +
                               " has not asked for 10 seconds; the rows are forgotten");
  drop();
}

std::string Recordings::state() const {
  return json_text([this](JsonWriter& json) {
    const models::Model* const model = sampler_->model();
    json.begin_object().key("recording").boolean(model != nullptr && !sampler_->has_ended());
    if (model != nullptr) {
      const service::RowSampler::Count count = sampler_->count();
      json.key("model").string(model->metadata().name);
      json.key("version").string(model->metadata().version);
      json.key("rows").unsigned_integer(rows_);
      json.key("seen").unsigned_integer(count.seen);
      json.key("kept").unsigned_integer(count.kept);
      json.key("left_out").unsigned_integer(count.left_out);
      json.key("bytes").unsigned_integer(count.bytes);
    }
    json.end_object();
  });
}

// A line of JSON that describes the tensors, then their bytes.
Status Recordings::answer_row(uint32_t number, service::Job& job) {
  const std::vector<TensorView> row = sampler_->row(number);
  if (row.empty()) {
    return Status::error(Code::kNotFound,
                         "row %u: rows are there once a recording has ended, from 0 to one less "
                         "than \"kept\"",
                         number);
  }
  const auto& specs = sampler_->model()->metadata().inputs;
  std::string text = json_text([&](JsonWriter& json) {
    json.begin_object().key("inputs").begin_array();
    for (size_t i = 0; i < row.size(); ++i) {
      json.begin_object().key("name").string(specs[i].name);
      json.key("datatype").string(element_type_name(row[i].type));
      json.key("shape").begin_array();
      for (const int64_t size : row[i].shape.dimensions()) json.integer(size);
      json.end_array().key("bytes").unsigned_integer(row[i].byte_size).end_object();
    }
    json.end_array().end_object();
  });
  text.push_back('\n');
  for (const TensorView& input : row) {
    text.append(reinterpret_cast<const char*>(input.data), input.byte_size);
  }
  job.content_type = "application/octet-stream";
  job.answer(text);
  return job.status;
}

}  // namespace lumen::server
