// Address parsing and listening sockets. Control plane.
#include <lumen/net/socket.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>

namespace lumen::net {
namespace {

// The kernel cuts this to net.core.somaxconn; a burst of connects must not be refused below it.
constexpr int kListenBacklog = 4096;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

Result<SocketAddress> to_socket_address(const TcpAddress& address) {
  SocketAddress out;
  const std::string host = address.host == "localhost" ? "127.0.0.1" : address.host;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(address.port);
    out.size = sizeof(sockaddr_in);
    return out;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(address.port);
    out.size = sizeof(sockaddr_in6);
    return out;
  }
  return Status::error(Code::kInvalidArgument,
                       "address '%s': not an IPv4 or IPv6 address; names other than 'localhost' "
                       "are not looked up",
                       address.host.c_str());
}

// AF_UNSPEC: it has none.
SocketAddress bound_address(int fd) {
  SocketAddress out;
  out.size = sizeof(out.storage);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&out.storage), &out.size) != 0) return {};
  return out;
}

TcpAddress to_tcp_address(const SocketAddress& from) {
  char host[INET6_ADDRSTRLEN] = "";
  if (from.storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&from.storage);
    (void)inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
    return {host, ntohs(v4->sin_port)};
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&from.storage);
  (void)inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
  return {host, ntohs(v6->sin6_port)};
}

std::string unix_name(const SocketAddress& from) {
  const auto* address = reinterpret_cast<const sockaddr_un*>(&from.storage);
  const size_t head = offsetof(sockaddr_un, sun_path);
  if (from.size <= head) return {};  // bound to no name
  const std::string_view path(address->sun_path, from.size - head);
  std::string name(path.substr(0, path.find('\0', 1)));
  if (name[0] == '\0') name[0] = '@';  // an abstract one
  return name;
}

int socket_option(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  return ::getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

}  // namespace

std::string TcpAddress::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<TcpAddress> parse_tcp_address(std::string_view text) {
  const auto fail = [text] {
    return Status::error(Code::kInvalidArgument,
                         "address '%.*s': wanted HOST:PORT with a port from 0 to 65535, for "
                         "example 127.0.0.1:8000",
                         static_cast<int>(text.size()), text.data());
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return fail();
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  TcpAddress address;
  const auto [end, error] =
      std::from_chars(port_text.data(), port_text.data() + port_text.size(), address.port);
  if (error != std::errc{} || end != port_text.data() + port_text.size()) return fail();
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return fail();
  }
  address.host = host.empty() ? "127.0.0.1" : std::string(host);
  Result<SocketAddress> checked = to_socket_address(address);
  if (!checked.ok()) return checked.status();
  return address;
}

bool is_loopback(const TcpAddress& address) noexcept {
  if (address.host == "localhost") return true;
  in_addr v4{};
  if (::inet_pton(AF_INET, address.host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  if (::inet_pton(AF_INET6, address.host.c_str(), &v6) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

Result<TcpListener> listen_tcp(const TcpAddress& address, bool shared_port) {
  Result<SocketAddress> where = to_socket_address(address);
  if (!where.ok()) return where.status();
  const std::string text = address.text();
  UniqueFd fd(::socket(where->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::from_errno(errno, "opening a socket for %s", text.c_str());
  const int on = 1;
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (shared_port) (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&where->storage), where->size) != 0) {
    return Status::from_errno(errno,
                              "binding %s (is another server there? --http 127.0.0.1:0 "
                              "picks a free port)",
                              text.c_str());
  }
  if (::listen(fd.get(), kListenBacklog) != 0) {
    return Status::from_errno(errno, "listening on %s", text.c_str());
  }
  TcpListener listener{std::move(fd), address};
  listener.address.port = to_tcp_address(bound_address(listener.fd.get())).port;
  return listener;
}

Result<ListeningSocket> look_at_listener(int fd) {
  const int domain = socket_option(fd, SO_DOMAIN);
  const bool is_unix = domain == AF_UNIX;
  if ((!is_unix && domain != AF_INET && domain != AF_INET6) ||
      socket_option(fd, SO_TYPE) != SOCK_STREAM || socket_option(fd, SO_ACCEPTCONN) != 1) {
    return Status::error(Code::kInvalidArgument,
                         "descriptor %d: wanted a stream socket of TCP or unix that listens "
                         "(ListenStream= and Accept=no of systemd)",
                         fd);
  }
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return Status::from_errno(errno, "making descriptor %d non-blocking", fd);
  }
  const SocketAddress address = bound_address(fd);
  std::string name = is_unix ? unix_name(address) : to_tcp_address(address).text();
  return ListeningSocket{fd, is_unix, std::move(name)};
}

}  // namespace lumen::net
