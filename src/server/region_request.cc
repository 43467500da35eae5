// See the header.
#include "server/region_request.h"

#include "server/job_json.h"

#include <lumen/base/limits.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace lumen::server {
namespace {

using nlohmann::json;

constexpr const char* kWanted = R"({"key": "/NAME", "offset": 0, "byte_size": 1024})";

Status read_number(const json& body, const char* key, uint64_t& number) {
  const auto found = body.find(key);
  if (found == body.end()) return {};
  if (!found->is_number_unsigned()) {
    return Status::error(Code::kInvalidArgument, "%s: got %s, wanted bytes, 0 to %llu", key,
                         shown(*found).c_str(), static_cast<unsigned long long>(UINT64_MAX));
  }
  number = found->get<uint64_t>();
  return {};
}

}  // namespace

Result<service::SharedRegion::Source> parse_registration(std::string_view name,
                                                         std::string_view body) {
  const Result<json> parsed = parse_job(body, kWanted);
  if (!parsed.ok()) return parsed.status();
  if (name.size() > limits::kMaxNameBytes) {
    return Status::error(Code::kInvalidArgument,
                         "the name of a region has %zu bytes, wanted 1 to %zu", name.size(),
                         limits::kMaxNameBytes);
  }
  // It stands in messages of the data plane, which escape nothing.
  const auto is_control = [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; };
  if (std::ranges::any_of(name, is_control)) {
    return Status::error(Code::kInvalidArgument, "the name of a region has a control character");
  }
  const auto key = parsed->find("key");
  if (key == parsed->end() || !key->is_string()) {
    return Status::error(Code::kInvalidArgument, "key: got %s; wanted %s",
                         key == parsed->end() ? "none" : shown(*key).c_str(), kWanted);
  }
  service::SharedRegion::Source source{.name = std::string(name), .key = key->get<std::string>()};
  LUMEN_RETURN_IF_ERROR(read_number(*parsed, "offset", source.offset));
  LUMEN_RETURN_IF_ERROR(read_number(*parsed, "byte_size", source.byte_size));
  return source;
}

}  // namespace lumen::server
