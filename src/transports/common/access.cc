// See the header.
#include <lumen/transports/common/access.h>

#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace lumen::transports {
namespace {

int echo_width(std::string_view text) noexcept {
  return static_cast<int>(std::min<size_t>(text.size(), 200));
}

// Why no client of TCP may do it, or those of this machine alone.
Status check_machine(const Client& client, bool is_on, std::string_view asked,
                     const char* fix) noexcept {
  if (!is_on) {
    // A client that can reach the port may use the models; the owner and mode of the socket file
    // decide which users may change the server.
    return Status::error(Code::kForbidden, "'%.*s' answers on the unix socket only; see --unix%s",
                         echo_width(asked), asked.data(), fix);
  }
  const std::optional<sockaddr_storage> own = client.loop.own_address(client.stream);
  if (own && is_loopback(reinterpret_cast<const sockaddr&>(*own))) return {};
  return Status::error(Code::kForbidden,
                       "'%.*s' answers clients of this machine only: connect to 127.0.0.1, ::1 or "
                       "the unix socket",
                       echo_width(asked), asked.data());
}

}  // namespace

bool is_loopback(const sockaddr& address) noexcept {
  if (address.sa_family == AF_INET) {
    sockaddr_in ip{};
    std::memcpy(&ip, &address, sizeof ip);
    return ntohl(ip.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  if (address.sa_family != AF_INET6) return false;
  sockaddr_in6 ip{};
  std::memcpy(&ip, &address, sizeof ip);
  return IN6_IS_ADDR_LOOPBACK(&ip.sin6_addr) ||
         (IN6_IS_ADDR_V4MAPPED(&ip.sin6_addr) && ip.sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
}

Status check_audience(Audience audience, const Client& client, const AccessRules& rules,
                      std::string_view asked) noexcept {
  if (audience == Audience::kAll || client.is_local) return {};
  switch (audience) {
    case Audience::kSharedMemory:
      return check_machine(client, rules.tcp_shm, asked, "; --tcp-shm on allows it over TCP");
    case Audience::kControl:
      if (client.role == Role::kControl) return {};
      if (client.role == Role::kNone) {
        return check_machine(client, rules.tcp_control, asked,
                             "; --tcp-control on allows it over TCP");
      }
      return Status::error(Code::kForbidden,
                           "'%.*s' wants a key with the role control, or the unix socket",
                           echo_width(asked), asked.data());
    default: return check_machine(client, false, asked, "");
  }
}

Result<uid_t> region_user(const Client& client, const AccessRules& rules) noexcept {
  if (!client.is_local) {
    if (!rules.tcp_shm) {
      return Status::error(Code::kForbidden,
                           "shared memory is for clients of the unix socket; see --unix; "
                           "--tcp-shm on allows it over TCP");
    }
    LUMEN_RETURN_IF_ERROR(check_machine(client, true, "shared memory", ""));
    return ::geteuid();
  }
  const std::optional<PeerCredentials> peer = client.loop.peer_credentials(client.stream);
  if (peer) return peer->uid;
  return Status::error(Code::kForbidden, "the kernel does not tell whose the connection is");
}

}  // namespace lumen::transports
