// The socket of a process that connects to a bus, and how long it waits. Threads: any. Memory:
// none. Errors: Result with path and reason.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>

#include <lumen/bus/peer.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

namespace lumen::bus {

// A wait that its caller may end, as ConnectOptions says.
class Patience {
 public:
  explicit Patience(uint64_t deadline_ns, std::function<bool()> goes_on = {})
      : deadline_ns_(deadline_ns), goes_on_(std::move(goes_on)) {}

  // kTimedOut: `until_ns` or the deadline has come.
  [[nodiscard]] Woken sleep(std::span<pollfd> fds, uint64_t until_ns = UINT64_MAX);
  [[nodiscard]] bool is_over() const noexcept;

 private:
  const uint64_t deadline_ns_;
  const std::function<bool()> goes_on_;
  uint64_t next_look_ns_ = 0;
};

// `wait_for_listener`: tries again while nobody listens yet.
[[nodiscard]] Result<UniqueFd> connect_socket(const std::string& path, bool wait_for_listener,
                                              Patience& patience);

}  // namespace lumen::bus
