// Target: where a server listens, from a URL: http://HOST:PORT[/prefix], unix:/path,
// http+unix://%2Fpath[/prefix], grpc://HOST:PORT, grpc+unix:/path, or bus:/path; with TLS
// https://HOST:PORT[/prefix] and grpcs://HOST:PORT.
// Threads: a value, any may connect. Memory: control plane; the name is resolved once.
// Errors: Status naming the URL and the forms that are understood.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lumen::client {

class TlsContext;

// Files in PEM.
struct TlsOptions {
  static constexpr std::string_view kNoCheck = "none";
  // The authorities that may have signed the server's certificate; empty: the machine's, or those
  // that SSL_CERT_FILE names; kNoCheck: the certificate is not checked.
  std::string ca = {};
  // The client's own certificate, and its key. Empty: it has none; the key stands in `cert`.
  std::string cert = {};
  std::string key = {};
};

struct Target {
  std::string url;        // as given, for messages
  std::string host;       // of the Host header
  std::string base_path;  // "" or "/prefix", put before every path
  // Lines of each request's head, each with its end; see set_key().
  std::string head_lines = {};
  std::string authorization = {};  // of calls of gRPC, by set_key() too
  bool is_grpc = false;
  std::shared_ptr<const TlsContext> tls = {};  // nullptr: no TLS
  sockaddr_storage address{};
  socklen_t address_bytes = 0;
  std::string bus_path;  // not empty: over the bus, and all else but the URL is not used

  [[nodiscard]] bool is_bus() const noexcept { return !bus_path.empty(); }
  [[nodiscard]] bool is_unix() const noexcept { return address.ss_family == AF_UNIX; }
};

// True for a word that is meant as a URL, right or wrong: `lumen bench` tells it from a bench's
// name so.
[[nodiscard]] bool looks_like_url(std::string_view word) noexcept;

inline constexpr std::string_view kTargetForms =
    "http://HOST:PORT, https://HOST:PORT, unix:/PATH, http+unix://%2FPATH, grpc://HOST:PORT, "
    "grpcs://HOST:PORT, grpc+unix:/PATH or bus:/PATH";

// Errors: kInvalidArgument; kUnavailable where the name of the host is not known now. They name
// `forms` as the wanted ones.
[[nodiscard]] Result<Target> parse_target(std::string_view url,
                                          std::string_view forms = kTargetForms);

// Of a target of https:// or grpcs://, whose options are those of TlsOptions{} until then. Errors:
// it has another URL, or a file is wrong.
[[nodiscard]] Status set_tls(Target& target, const TlsOptions& options);

// From now on requests have the API key `key`; empty: none. Errors: it has characters that no
// header can carry. They don't say the key.
[[nodiscard]] Status set_key(Target& target, std::string_view key);

// A socket that is connected or, over TCP, connecting; it never blocks afterwards. Over a unix
// socket connect() waits where the listener's backlog is full (there is no EINPROGRESS),
// `timeout_ns` at most.
struct Connecting {
  UniqueFd fd;
  int error = 0;  // errno of the failure; fd is then invalid
  bool connected = false;
};
[[nodiscard]] Connecting start_connecting(const Target& target, uint64_t timeout_ns) noexcept;

}  // namespace lumen::client
