// See the header.
#include <lumen/client/client_socket.h>

#include "client/tls_context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace lumen::client {

void ClientSocket::EndSession::operator()(ssl_st* session) const noexcept { SSL_free(session); }

ClientSocket::ClientSocket(UniqueFd fd, const Target& target) : fd_(std::move(fd)) {
  if (target.tls != nullptr) session_.reset(target.tls->begin(fd_.get()));
  if (target.tls != nullptr && session_ == nullptr) fd_.reset();  // no memory
  if (session_ != nullptr) SSL_set_app_data(session_.get(), target.tls.get());
}

void ClientSocket::reset() noexcept {
  // A goodbye where there was a handshake; nobody waits for the other end's.
  if (session_ != nullptr && SSL_is_init_finished(session_.get())) SSL_shutdown(session_.get());
  ERR_clear_error();
  session_.reset();
  fd_.reset();
}

ClientSocket::Shaken ClientSocket::shake_hands() noexcept {
  if (session_ == nullptr) return Shaken::kDone;
  ERR_clear_error();
  const int outcome = SSL_do_handshake(session_.get());
  if (outcome != 1) {
    if (tell(outcome) < 0 && errno == EAGAIN) return Shaken::kPending;
    if (reason_.empty()) reason_ = "the server closed the connection in the handshake";
    return Shaken::kFailed;
  }
  const auto* const context = static_cast<const TlsContext*>(SSL_get_app_data(session_.get()));
  if (context->has_protocol(*session_)) return Shaken::kDone;
  errno = EPROTO;
  reason_ = "the server does not offer HTTP/2 (ALPN)";
  return Shaken::kFailed;
}

ssize_t ClientSocket::send(std::string_view bytes) noexcept {
  if (session_ == nullptr) return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  ERR_clear_error();
  size_t written = 0;
  const int outcome = SSL_write_ex(session_.get(), bytes.data(), bytes.size(), &written);
  return outcome == 1 ? static_cast<ssize_t>(written) : tell(outcome);
}

ssize_t ClientSocket::receive(std::span<char> room) noexcept {
  if (session_ == nullptr) return ::recv(fd_.get(), room.data(), room.size(), 0);
  ERR_clear_error();
  size_t read = 0;
  const int outcome = SSL_read_ex(session_.get(), room.data(), room.size(), &read);
  return outcome == 1 ? static_cast<ssize_t>(read) : tell(outcome);
}

short ClientSocket::awaited(short otherwise) const noexcept {
  if (session_ == nullptr) return otherwise;
  return SSL_want_write(session_.get()) ? POLLOUT : POLLIN;
}

ssize_t ClientSocket::tell(int outcome) noexcept {
  const int kernel_error = errno;
  reason_.clear();
  switch (SSL_get_error(session_.get(), outcome)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: errno = EAGAIN; return -1;
    case SSL_ERROR_ZERO_RETURN: errno = 0; return 0;
    case SSL_ERROR_SYSCALL: errno = kernel_error; return kernel_error == 0 ? 0 : -1;
    default: break;
  }
  const long verified = SSL_get_verify_result(session_.get());
  reason_ = "TLS: " + take_tls_reason();
  if (verified != X509_V_OK) {
    reason_.append(": ").append(X509_verify_cert_error_string(verified));
  }
  errno = EPROTO;
  return -1;
}

}  // namespace lumen::client
