// Access: the clients that may call a method or a path, by their connection and their key.
// Threads: the client's I/O thread. Memory: none. Errors: kForbidden, with the fix.
#pragma once

#include <lumen/base/result.h>
#include <lumen/net/loop.h>
#include <lumen/transports/common/api_keys.h>

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <string_view>

namespace lumen::transports {

// The clients that may use a method or a path.
enum class Audience : uint8_t {
  kAll,
  kControl,       // of the unix socket; over TCP as the setting tcp_control says
  kSharedMemory,  // the same, as tcp_shm says
  kUnixSocket,
};

// Whether clients of this machine may do over TCP as those of the unix socket: change models and
// settings, and have shared memory.
struct AccessRules {
  bool tcp_control = false;
  bool tcp_shm = false;
};

struct Client {
  net::Loop& loop;
  net::Stream& stream;
  bool is_local;  // by the unix socket
  Role role;      // of its key; kNone: none was asked for
};

[[nodiscard]] bool is_loopback(const sockaddr& address) noexcept;

// `asked`: the method or path, for the message.
[[nodiscard]] Status check_audience(Audience audience, const Client& client,
                                    const AccessRules& rules, std::string_view asked) noexcept;

// The user whose regions of shared memory the inference of a client may use.
[[nodiscard]] Result<uid_t> region_user(const Client& client, const AccessRules& rules) noexcept;

}  // namespace lumen::transports
