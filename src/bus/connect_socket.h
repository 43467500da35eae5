// The socket of a process that connects to a bus. Threads: any. Memory: none. Errors: Result with
// path and reason.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>

#include <cstdint>
#include <string>

namespace lumen::bus {

// `wait_for_listener`: tries again until the deadline where nobody listens yet.
[[nodiscard]] Result<UniqueFd> connect_socket(const std::string& path, bool wait_for_listener,
                                              uint64_t deadline_ns);

}  // namespace lumen::bus
