// See the header.
#include "server/shared_regions.h"

#include "server/asked_by.h"
#include "server/job_json.h"
#include "server/region_request.h"

#include <lumen/base/machine_memory.h>
#include <lumen/service/shared_region.h>
#include <lumen/wire/json_text.h>

#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace lumen::server {
namespace {

// A client sees and removes the regions of its own user; over TCP those of the server's.
uid_t user_of(const service::Job& job) { return job.by ? job.by->uid : ::geteuid(); }

bool has_region(const service::CatalogSnapshot& catalog, std::string_view name, uid_t user) {
  const service::SharedRegion* const region = catalog.find_region(name);
  return region != nullptr && region->user() == user;
}

// Addresses of regions together: a file may be longer than the memory that it has.
Status check_room(const service::CatalogSnapshot& catalog, uint64_t more, uid_t user,
                  uint64_t most_of_user) {
  using ull = unsigned long long;
  uint64_t sum = more;
  uint64_t of_user = more;
  const auto add = [](uint64_t& total, uint64_t bytes) {
    if (__builtin_add_overflow(total, bytes, &total)) total = UINT64_MAX;
  };
  for (const auto& region : catalog.regions) {
    add(sum, region->source().byte_size);
    if (region->user() == user) add(of_user, region->source().byte_size);
  }
  if (most_of_user != 0 && of_user > most_of_user) {
    return Status::error(Code::kResourceExhausted,
                         "the regions of user %u would have %llu bytes, more than the %llu of "
                         "--shm-user-bytes; unregister those that are not used",
                         user, ull{of_user}, ull{most_of_user});
  }
  const uint64_t most = machine_memory().bytes;
  if (sum <= most) return {};
  return Status::error(Code::kResourceExhausted,
                       "all regions together would have %llu bytes, more than the %llu of this "
                       "machine's memory; unregister those that are not used",
                       ull{sum}, ull{most});
}

// With or without the slash.
Status check_prefix(std::string_view key, std::string_view prefix) {
  const auto bare = [](std::string_view text) {
    return text.substr(text.starts_with('/') ? 1 : 0);
  };
  if (bare(key).starts_with(bare(prefix))) return {};
  return Status::error(
      Code::kForbidden, "key %s: wanted one that begins with '%s', as --shm-key-prefix says",
      shown(nlohmann::json(std::string(key))).c_str(), std::string(bare(prefix)).c_str());
}

}  // namespace

void SharedRegions::handle(service::Job& job) {
  using Topic = service::Job::Topic;
  if (job.topic == Topic::kRegions) {
    job.status = tell(job);
    return;
  }
  job.status = job.topic == Topic::kRegisterRegion ? enter(job) : leave(job);
  if (job.status.ok()) job.answer("{}");
}

Status SharedRegions::tell(service::Job& job) const {
  const auto catalog = catalog_.snapshot();
  const uid_t user = user_of(job);
  if (!job.subject.empty() && !has_region(*catalog, job.subject, user)) {
    return service::region_not_found(job.subject);
  }
  job.answer(wire::json_text([&](wire::JsonWriter& json) {
    json.begin_array();
    for (const auto& region : catalog->regions) {
      const service::SharedRegion::Source& source = region->source();
      if (region->user() != user) continue;
      if (!job.subject.empty() && job.subject != source.name) continue;
      json.begin_object().key("name").string(source.name).key("key").string(source.key);
      json.key("offset").unsigned_integer(source.offset);
      json.key("byte_size").unsigned_integer(source.byte_size).end_object();
    }
    json.end_array();
  }));
  return job.status;
}

Status SharedRegions::enter(const service::Job& job) {
  Result<service::SharedRegion::Source> source = parse_registration(job.subject, job.text);
  if (!source.ok()) return source.status();
  LUMEN_RETURN_IF_ERROR(check_prefix(source->key, key_prefix_));
  LUMEN_RETURN_IF_ERROR(
      check_room(*catalog_.snapshot(), source->byte_size, user_of(job), user_bytes_));
  const std::optional<uid_t> user = job.by ? std::optional(job.by->uid) : std::nullopt;
  const auto region = service::SharedRegion::open(*std::move(source), user);
  if (!region.ok()) return region.status();
  return catalog_.add_region(*region);
}

Status SharedRegions::leave(const service::Job& job) {
  LUMEN_RETURN_IF_ERROR(parse_job(job.text, "no body, or {}").status());
  const auto catalog = catalog_.snapshot();
  const uid_t user = user_of(job);
  if (!job.subject.empty()) {
    // Without one it is done already: programs clean up before they begin, and Triton answers so.
    if (!has_region(*catalog, job.subject, user)) return {};
    return catalog_.remove_region(job.subject);
  }
  for (const auto& region : catalog->regions) {
    if (region->user() != user) continue;
    LUMEN_RETURN_IF_ERROR(catalog_.remove_region(region->name()));
  }
  return {};
}

}  // namespace lumen::server
