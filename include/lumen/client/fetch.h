// fetch, post: one HTTP request on a connection of its own, waited for: metadata, statistics,
// metrics; spans to a collector.
// Threads: any. Memory: the heap; control plane. Errors: Status with the URL, the path and why; a
// reply of any status is a value.
#pragma once

#include <lumen/client/target.h>

#include <lumen/base/result.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lumen::client {

struct Reply {
  int status = 0;
  std::string body;
  std::optional<uint64_t> retry_after_s = {};
};

inline constexpr uint64_t kFetchTimeoutNs = 10'000'000'000u;

[[nodiscard]] Result<Reply> fetch(const Target& target, std::string_view path,
                                  uint64_t timeout_ns = kFetchTimeoutNs);
[[nodiscard]] Result<Reply> post(const Target& target, std::string_view path,
                                 std::string_view content_type, std::string_view body,
                                 uint64_t timeout_ns = kFetchTimeoutNs);

}  // namespace lumen::client
