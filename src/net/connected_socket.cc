// Options and facts of a connected socket. Its loop's thread; allocates nothing.
#include "net/connected_socket.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <climits>

namespace lumen::net {

void configure_stream(int fd) noexcept {
  const int on = 1;
  // Fails harmlessly on unix sockets, which have no Nagle to switch off.
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// On a unix socket these fail harmlessly: bytes sent there are in the peer's buffer already, and go
// with it.
void reset_on_close(int fd) noexcept {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  (void)::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

bool had_unsent(int fd) noexcept {
  int bytes = 0;
  return ::ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

void limit_unsent_time(int fd, uint64_t ns) noexcept {
  const uint64_t ms = std::min<uint64_t>((ns + 999'999) / 1'000'000, INT_MAX);
  const auto wanted = static_cast<unsigned int>(ms);
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &wanted, sizeof(wanted));
}

std::optional<sockaddr_storage> own_address(int fd) noexcept {
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) return std::nullopt;
  return own;
}

}  // namespace lumen::net
