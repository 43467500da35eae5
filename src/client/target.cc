// URLs to addresses, and the sockets to them. Control plane but for start_connecting(), which the
// load threads call; that allocates nothing. Errors: as target.h says.
#include <lumen/client/target.h>

#include "client/tls_context.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <optional>

namespace lumen::client {

namespace {

Status refuse(std::string_view url, const char* why, Code code = Code::kInvalidArgument) {
  return Status::error(code, "URL '%.*s': %s", static_cast<int>(url.size()), url.data(), why);
}

int hex_value(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_value(text[i + 1]);
    const int low = hex_value(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

Result<Target> unix_target(std::string_view url, const std::string& path) {
  Target target;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty()) return refuse(url, "has no path");
  if (path.size() >= sizeof(address.sun_path)) return refuse(url, "its path is over 107 bytes");
  std::memcpy(address.sun_path, path.data(), path.size());
  std::memcpy(&target.address, &address, sizeof(address));
  target.address_bytes = sizeof(address);
  target.url = url;
  target.host = "localhost";
  return target;
}

// The host without brackets, and the port where there is one.
struct Authority {
  std::string_view host;
  std::string_view port;
};

Authority split(std::string_view authority, std::string_view usual_port) {
  const size_t colon = authority.rfind(':');
  const size_t bracket = authority.rfind(']');
  std::string_view host = authority;
  std::string_view port = usual_port;
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    host = authority.substr(0, colon);
    port = authority.substr(colon + 1);
  }
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return {host, port};
}

Result<Target> tcp_target(std::string_view url, std::string_view authority, bool is_tls) {
  const auto [host, port] = split(authority, is_tls ? "443" : "80");
  unsigned number = 0;
  const auto [rest, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc{} || rest != port.data() + port.size() || number == 0 || number > 65'535) {
    return refuse(url, "its port is not 1 to 65535");
  }
  if (host.empty()) return refuse(url, "has no host");
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failure =
      getaddrinfo(std::string(host).c_str(), std::string(port).c_str(), &hints, &found);
  if (failure != 0) return refuse(url, gai_strerror(failure), Code::kUnavailable);
  Target target;
  std::memcpy(&target.address, found->ai_addr, found->ai_addrlen);
  target.address_bytes = found->ai_addrlen;
  freeaddrinfo(found);
  target.url = url;
  target.host = authority;
  return target;
}

void set_base_path(Target& target, std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  target.base_path = path;
}

Status use_tls(Target& target, const TlsOptions& options) {
  const std::string host(split(target.host, "").host);
  auto made = TlsContext::create(host, target.is_grpc, options);
  if (!made.ok()) return made.status();
  target.tls = std::move(*made);
  return {};
}

Result<Target> with_tls(Result<Target> target) {
  if (!target.ok()) return target;
  if (const Status status = use_tls(*target, {}); !status.ok()) return status;
  return target;
}

Result<Target> target_of(std::string_view url) {
  constexpr std::string_view kBus = "bus:", kUnix = "unix:", kHttpUnix = "http+unix://",
                             kHttp = "http://", kHttps = "https://", kGrpc = "grpc://",
                             kGrpcs = "grpcs://", kGrpcUnix = "grpc+unix:";
  for (const char c : url) {
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7f) return refuse(url, "holds a blank");
  }
  if (url.starts_with(kBus)) {
    Target target;
    target.url = url;
    target.bus_path = url.substr(kBus.size());
    if (target.bus_path.empty()) return refuse(url, "has no path");
    return target;
  }
  if (url.starts_with(kGrpcUnix) || url.starts_with(kUnix)) {
    const bool is_grpc = url.starts_with(kGrpcUnix);
    std::string_view path = url.substr(is_grpc ? kGrpcUnix.size() : kUnix.size());
    if (path.starts_with("//")) path.remove_prefix(2);  // as gRPC writes it: unix:///path
    Result<Target> target = unix_target(url, std::string(path));
    if (target.ok()) target->is_grpc = is_grpc;
    return target;
  }
  if (url.starts_with(kGrpc) || url.starts_with(kGrpcs)) {
    const bool is_tls = url.starts_with(kGrpcs);
    std::string_view authority = url.substr(is_tls ? kGrpcs.size() : kGrpc.size());
    while (authority.ends_with('/')) authority.remove_suffix(1);
    if (authority.find('/') != std::string_view::npos) return refuse(url, "gRPC has no prefix");
    Result<Target> target = tcp_target(url, authority, is_tls);
    if (target.ok()) target->is_grpc = true;
    return is_tls ? with_tls(std::move(target)) : std::move(target);
  }
  const bool is_tls = url.starts_with(kHttps);
  const bool over_unix = url.starts_with(kHttpUnix);
  std::string_view rest = url;
  if (over_unix) {
    rest.remove_prefix(kHttpUnix.size());
  } else if (url.starts_with(kHttp) || is_tls) {
    rest.remove_prefix(is_tls ? kHttps.size() : kHttp.size());
  } else if (url.find("://") != std::string_view::npos) {
    return refuse(url, "its scheme is unknown");
  }
  const size_t slash = rest.find('/');
  const std::string_view authority = rest.substr(0, slash);
  Result<Target> target = refuse(url, "is not percent-encoded rightly");
  if (!over_unix) {
    target = tcp_target(url, authority, is_tls);
  } else if (const auto path = percent_decoded(authority)) {
    target = unix_target(url, *path);
  }
  if (target.ok() && slash != std::string_view::npos) set_base_path(*target, rest.substr(slash));
  return is_tls ? with_tls(std::move(target)) : std::move(target);
}

}  // namespace

bool looks_like_url(std::string_view word) noexcept {
  return word.find(':') != std::string_view::npos || word.find('/') != std::string_view::npos;
}

Status set_tls(Target& target, const TlsOptions& options) {
  if (target.tls == nullptr) {
    return Status::error(Code::kInvalidArgument,
                         "'%s' speaks no TLS; wanted https://HOST:PORT or grpcs://HOST:PORT",
                         target.url.c_str());
  }
  return use_tls(target, options);
}

Status set_key(Target& target, std::string_view key) {
  const auto is_visible = [](char c) { return c > ' ' && c < 0x7f; };
  if (!std::ranges::all_of(key, is_visible)) {
    return Status::error(Code::kInvalidArgument,
                         "the API key has %zu characters that are not all visible ASCII; wanted "
                         "the KEY of a line of the server's api_key_file",
                         key.size());
  }
  target.authorization = key.empty() ? "" : "Bearer " + std::string(key);
  target.head_lines = key.empty() ? "" : "Authorization: " + target.authorization + "\r\n";
  return {};
}

Result<Target> parse_target(std::string_view url, std::string_view forms) {
  Result<Target> target = target_of(url);
  if (target.ok()) return target;
  return Status::error(target.status().code(), "%s; wanted %.*s", target.status().c_message(),
                       static_cast<int>(forms.size()), forms.data());
}

Connecting start_connecting(const Target& target, uint64_t timeout_ns) noexcept {
  Connecting result;
  const bool is_unix = target.is_unix();
  const int blocking = is_unix ? 0 : SOCK_NONBLOCK;
  UniqueFd fd(socket(target.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | blocking, 0));
  if (!fd.valid()) {
    result.error = errno;
    return result;
  }
  const int on = 1;
  if (is_unix) {
    timeval limit{};
    limit.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000u);
    limit.tv_usec = static_cast<suseconds_t>(timeout_ns % 1'000'000'000u / 1000);
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  } else {
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  const auto* address = reinterpret_cast<const sockaddr*>(&target.address);
  if (connect(fd.get(), address, target.address_bytes) == 0) {
    result.connected = true;
  } else if (is_unix || errno != EINPROGRESS) {
    result.error = errno;
    return result;
  }
  if (is_unix) fcntl(fd.get(), F_SETFL, O_NONBLOCK);
  result.fd = std::move(fd);
  return result;
}

}  // namespace lumen::client
