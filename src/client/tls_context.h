// TlsContext: the settings that all TLS connections to one target share: authorities, the name in
// the server's certificate, the client's own certificate, the protocol to be spoken.
// Threads: any, once it is made. Memory: OpenSSL's. Errors: create() names the wrong file.
#pragma once

#include <lumen/client/target.h>

#include <lumen/base/result.h>

#include <openssl/ssl.h>

#include <memory>
#include <string>

namespace lumen::client {

// OpenSSL's first reason, whose queue of errors is empty afterwards.
[[nodiscard]] std::string take_tls_reason();

class TlsContext {
 public:
  // `host`: a name, or an address without brackets.
  [[nodiscard]] static Result<std::shared_ptr<const TlsContext>> create(const std::string& host,
                                                                        bool is_grpc,
                                                                        const TlsOptions& options);
  // Of one connection; it does not own `fd`. nullptr: no memory.
  [[nodiscard]] SSL* begin(int fd) const noexcept;
  // After the handshake: the server has chosen the wanted protocol.
  [[nodiscard]] bool has_protocol(const SSL& session) const noexcept;

 private:
  struct FreeContext {
    void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
  };
  TlsContext(std::string host, bool is_grpc);
  [[nodiscard]] Status configure(const TlsOptions& options);

  std::string host_;
  bool is_grpc_;
  std::unique_ptr<SSL_CTX, FreeContext> context_;
};

}  // namespace lumen::client
