// See the header.
#include "client/tls_context.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <utility>

namespace lumen::client {
namespace {

// The protocols as ALPN lists them.
constexpr std::string_view kHttp2("\x02h2", 3);
constexpr std::string_view kHttp1("\x08http/1.1", 9);

bool is_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

// --- a socket under OpenSSL: as its own, but for SIGPIPE -----------------------------------------

int fd_of(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

int write_socket(BIO* bio, const char* bytes, size_t size, size_t* written) {
  BIO_clear_retry_flags(bio);
  ssize_t count = 0;
  do {
    count = ::send(fd_of(bio), bytes, size, MSG_NOSIGNAL);
  } while (count < 0 && errno == EINTR);
  if (count < 0 && errno == EAGAIN) BIO_set_retry_write(bio);
  if (count < 0) return 0;
  *written = static_cast<size_t>(count);
  return 1;
}

int read_socket(BIO* bio, char* room, size_t size, size_t* read) {
  BIO_clear_retry_flags(bio);
  ssize_t count = 0;
  do {
    count = ::recv(fd_of(bio), room, size, 0);
  } while (count < 0 && errno == EINTR);
  if (count < 0 && errno == EAGAIN) BIO_set_retry_read(bio);
  if (count == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  if (count <= 0) return 0;
  *read = static_cast<size_t>(count);
  return 1;
}

long control_socket(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* socket_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    if (made == nullptr) return made;
    BIO_meth_set_write_ex(made, write_socket);
    BIO_meth_set_read_ex(made, read_socket);
    BIO_meth_set_ctrl(made, control_socket);
    return made;
  }();
  return method;
}

Status refused(const char* option, const std::string& file, const char* wanted) {
  return Status::error(Code::kInvalidArgument, "%s %s: %s; wanted %s", option, file.c_str(),
                       take_tls_reason().c_str(), wanted);
}

}  // namespace

std::string take_tls_reason() {
  const unsigned long first = ERR_get_error();
  ERR_clear_error();
  if (ERR_SYSTEM_ERROR(first)) return std::generic_category().message(ERR_GET_REASON(first));
  const char* const reason = ERR_reason_error_string(first);
  return reason != nullptr ? reason : "no reason is known";
}

TlsContext::TlsContext(std::string host, bool is_grpc)
    : host_(std::move(host)), is_grpc_(is_grpc), context_(SSL_CTX_new(TLS_client_method())) {}

Result<std::shared_ptr<const TlsContext>> TlsContext::create(const std::string& host, bool is_grpc,
                                                             const TlsOptions& options) {
  std::shared_ptr<TlsContext> made(new TlsContext(host, is_grpc));
  LUMEN_RETURN_IF_ERROR(made->configure(options));
  return std::shared_ptr<const TlsContext>(std::move(made));
}

Status TlsContext::configure(const TlsOptions& options) {
  SSL_CTX* const context = context_.get();
  const std::string_view protocol = is_grpc_ ? kHttp2 : kHttp1;
  if (context == nullptr || socket_method() == nullptr ||
      SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1 ||
      SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>(protocol.data()),
                              static_cast<unsigned>(protocol.size())) != 0) {
    return Status::error(Code::kResourceExhausted, "TLS: %s", take_tls_reason().c_str());
  }
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (options.ca != TlsOptions::kNoCheck) {
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    const bool has_authorities = options.ca.empty()
                                     ? SSL_CTX_set_default_verify_paths(context) == 1
                                     : SSL_CTX_load_verify_file(context, options.ca.c_str()) == 1;
    if (!has_authorities) {
      return refused("--tls-ca", options.ca, "certificates of authorities in PEM, or 'none'");
    }
  }
  if (options.cert.empty()) return {};
  if (SSL_CTX_use_certificate_chain_file(context, options.cert.c_str()) != 1) {
    return refused("--tls-cert", options.cert, "a certificate in PEM, then those of its chain");
  }
  const std::string& key = options.key.empty() ? options.cert : options.key;
  if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return refused("--tls-key", key, "the certificate's private key in PEM, without a password");
  }
  return {};
}

SSL* TlsContext::begin(int fd) const noexcept {
  SSL* const session = SSL_new(context_.get());
  BIO* const bio = session != nullptr ? BIO_new(socket_method()) : nullptr;
  if (bio == nullptr) {
    SSL_free(session);
    return nullptr;
  }
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
  BIO_set_init(bio, 1);
  SSL_set_bio(session, bio, bio);  // which is its owner now
  const bool is_set =
      is_address(host_) ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host_.c_str()) == 1
                        : SSL_set1_host(session, host_.c_str()) == 1 &&
                              SSL_set_tlsext_host_name(session, host_.c_str()) == 1;
  if (!is_set) {
    SSL_free(session);
    return nullptr;
  }
  SSL_set_connect_state(session);
  return session;
}

bool TlsContext::has_protocol(const SSL& session) const noexcept {
  if (!is_grpc_) return true;
  const unsigned char* name = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(&session, &name, &size);
  return std::string_view(reinterpret_cast<const char*>(name), size) == kHttp2.substr(1);
}

}  // namespace lumen::client
