// TlsClient: a blocking client of HTTP over TLS, by OpenSSL on a socket of its own.
// Threads: one. Memory: the heap. Errors: false, or the status 0.
#pragma once

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

namespace lumen::server {

class TlsClient {
 public:
  explicit TlsClient(const std::string& address)
      : context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free),
        ssl_(SSL_new(context_.get()), SSL_free),
        bio_(BIO_new_connect(address.c_str())) {
    SSL_set_bio(ssl_.get(), bio_, bio_);  // which is its owner now
  }
  [[nodiscard]] bool connect() const { return SSL_connect(ssl_.get()) == 1; }
  // The status of the reply, whose body is read, too; 0: there is none.
  [[nodiscard]] int exchange(const std::string& request) {
    size_t sent = 0;
    if (SSL_write_ex(ssl_.get(), request.data(), request.size(), &sent) != 1) return 0;
    while (received_.find("\r\n\r\n") == std::string::npos) {
      if (!read_more()) return 0;
    }
    constexpr std::string_view kLength = "\r\nContent-Length: ";
    const size_t body = received_.find("\r\n\r\n") + 4;
    const size_t at = received_.find(kLength);
    const size_t bytes =
        at < body ? std::strtoul(received_.c_str() + at + kLength.size(), nullptr, 10) : 0;
    const int status = std::atoi(received_.c_str() + received_.find(' '));
    while (received_.size() < body + bytes) {
      if (!read_more()) return 0;
    }
    received_.erase(0, body + bytes);
    return status;
  }

 private:
  [[nodiscard]] bool read_more() {
    char chunk[16384];
    size_t got = 0;
    if (SSL_read_ex(ssl_.get(), chunk, sizeof(chunk), &got) != 1) return false;
    received_.append(chunk, got);
    return true;
  }

  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
  BIO* bio_;
  std::string received_;
};

}  // namespace lumen::server
