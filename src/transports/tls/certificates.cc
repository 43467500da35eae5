// See the header.
#include <lumen/transports/tls/certificates.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>
#include <cstring>
#include <string_view>
#include <utility>

namespace lumen::tls {
namespace {

using Context = std::shared_ptr<SSL_CTX>;

// Each protocol as ALPN lists it, ours first.
constexpr std::string_view kProtocols("\x02h2\x08http/1.1", 12);
// Of TLS 1.2; those of 1.3 are all good. With forward secrecy and authenticated encryption alone.
constexpr const char* kCiphers = "ECDHE+AESGCM:ECDHE+CHACHA20";
// Of the key exchange: Mozilla's. A handshake with P-521 or X448 costs several times as much.
constexpr const char* kGroups = "X25519:P-256:P-384";

// OpenSSL's first reason; the queue is empty afterwards.
std::string take_reason() {
  std::array<char, 256> text{};
  const unsigned long first = ERR_get_error();
  ERR_clear_error();
  if (first == 0) return "no reason is known";
  ERR_error_string_n(first, text.data(), text.size());
  return text.data();
}

Status refused(const char* setting, const std::string& file, const char* wanted) {
  return Status::error(Code::kInvalidArgument, "%s: %s: %s; wanted %s", setting, file.c_str(),
                       take_reason().c_str(), wanted);
}

int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* chosen_size,
                    const unsigned char* offered, unsigned int offered_size, void*) {
  unsigned char* found = nullptr;
  const int outcome = SSL_select_next_proto(
      &found, chosen_size, reinterpret_cast<const unsigned char*>(kProtocols.data()),
      static_cast<unsigned int>(kProtocols.size()), offered, offered_size);
  *chosen = found;
  // A client that offers neither is served HTTP/1.1 all the same.
  return outcome == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

Status set_rules(SSL_CTX& context) {
  SSL_CTX_set_min_proto_version(&context, TLS1_2_VERSION);
  SSL_CTX_set_options(&context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                    SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA |
                                    SSL_OP_IGNORE_UNEXPECTED_EOF);
  // Sessions are resumed by tickets, which take no memory here.
  SSL_CTX_set_session_cache_mode(&context, SSL_SESS_CACHE_OFF);
  constexpr std::string_view kName = "lumen";
  SSL_CTX_set_session_id_context(&context, reinterpret_cast<const unsigned char*>(kName.data()),
                                 static_cast<unsigned int>(kName.size()));
  SSL_CTX_set_alpn_select_cb(&context, choose_protocol, nullptr);
  if (SSL_CTX_set_cipher_list(&context, kCiphers) != 1 ||
      SSL_CTX_set1_groups_list(&context, kGroups) != 1) {
    return Status::error(Code::kUnsupported, "TLS: %s", take_reason().c_str());
  }
  return {};
}

Status read_files(SSL_CTX& context, const Files& files) {
  if (SSL_CTX_use_certificate_chain_file(&context, files.certificate.c_str()) != 1) {
    return refused("tls_cert", files.certificate, "a certificate in PEM, then those of its chain");
  }
  const std::string& key = files.key.empty() ? files.certificate : files.key;
  if (SSL_CTX_use_PrivateKey_file(&context, key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return refused("tls_key", key, "the certificate's private key in PEM, without a password");
  }
  if (SSL_CTX_check_private_key(&context) != 1) {
    return refused("tls_key", key, "the key of the certificate in tls_cert");
  }
  if (files.client_ca.empty()) return {};
  STACK_OF(X509_NAME)* const names = SSL_load_client_CA_file(files.client_ca.c_str());
  if (names == nullptr || SSL_CTX_load_verify_file(&context, files.client_ca.c_str()) != 1) {
    return refused("tls_client_ca", files.client_ca, "certificates in PEM");
  }
  SSL_CTX_set_client_CA_list(&context, names);
  SSL_CTX_set_verify(&context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return {};
}

Result<Context> read(const Files& files) {
  ERR_clear_error();
  Context context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (context == nullptr) return Status::error(Code::kNoMemory, "no memory for TLS");
  LUMEN_RETURN_IF_ERROR(set_rules(*context));
  LUMEN_RETURN_IF_ERROR(read_files(*context, files));
  return context;
}

}  // namespace

Certificates::Certificates(Files files, std::shared_ptr<SSL_CTX> context)
    : files_(std::move(files)), context_(std::move(context)) {}

Result<std::unique_ptr<Certificates>> Certificates::load(Files files) {
  Result<Context> context = read(files);
  if (!context.ok()) return context.status();
  return std::unique_ptr<Certificates>(new Certificates(std::move(files), std::move(*context)));
}

Status Certificates::reload() {
  Result<Context> context = read(files_);
  if (!context.ok()) return context.status();
  const std::lock_guard lock(mutex_);
  context_ = std::move(*context);
  return {};
}

std::shared_ptr<SSL_CTX> Certificates::current() const {
  const std::lock_guard lock(mutex_);
  return context_;
}

}  // namespace lumen::tls
