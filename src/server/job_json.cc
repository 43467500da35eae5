// See the header.
#include "server/job_json.h"

namespace lumen::server {

using nlohmann::json;

Result<json> parse_job(std::string_view text, const char* wanted, size_t most_bytes) {
  if (text.empty()) return json::object();
  if (text.size() > most_bytes) {
    return Status::error(Code::kTooLarge, "body: got %zu bytes, wanted %zu at most", text.size(),
                         most_bytes);
  }
  bool is_too_deep = false;
  const auto look = [&](int depth, json::parse_event_t, json&) {
    is_too_deep |= depth > kMaxJobDepth;
    return !is_too_deep;
  };
  json body = json::parse(text, look, false);
  if (is_too_deep) {
    return Status::error(Code::kInvalidArgument, "body: nested more than %d deep; wanted %s",
                         kMaxJobDepth, wanted);
  }
  if (!body.is_object()) {
    return Status::error(Code::kInvalidArgument, "body: got no JSON object; wanted %s", wanted);
  }
  return body;
}

std::string shown(const json& value) {
  constexpr size_t kMostShown = 60;
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kMostShown) text = text.substr(0, kMostShown - 3) + "...";
  return text;
}

}  // namespace lumen::server
