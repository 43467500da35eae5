// fetch: one HTTP request on a connection of its own, waited for: metadata, statistics, metrics.
// Threads: any. Memory: the heap; control plane. Errors: Status with the URL, the path and why; a
// reply of any status is a value.
#pragma once

#include <lumen/client/target.h>

#include <lumen/base/result.h>

#include <string>
#include <string_view>

namespace lumen::client {

struct Reply {
  int status = 0;
  std::string body;
};

[[nodiscard]] Result<Reply> fetch(const Target& target, std::string_view path,
                                  uint64_t timeout_ns = 10'000'000'000u);

}  // namespace lumen::client
