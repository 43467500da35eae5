// The body of a registration of shared memory.
// Threads: any. Memory: the heap. Errors: Status with got and wanted.
#pragma once

#include <lumen/base/result.h>
#include <lumen/service/shared_region.h>

#include <string_view>

namespace lumen::server {

// `name`: of the region, from the path. The object behind the key is not looked at.
[[nodiscard]] Result<service::SharedRegion::Source> parse_registration(std::string_view name,
                                                                       std::string_view body);

}  // namespace lumen::server
