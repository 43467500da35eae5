// A whole server and a client of TLS, by OpenSSL: infer requests of HTTP/1.1 in records that are
// cut anywhere, new keys, sessions that are resumed, and the fuzzer's own bytes between records.
// Requests before the first of these bytes must be answered with their own numbers.
//
// Threads: the fuzzer's; the server's own. Memory: the heap. Errors: CHECK.
#include "fuzz/http_replies.h"
#include "fuzz/live_server.h"
#include "support/certificate_file.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>

namespace {

using lumen::fuzz::Connection;
using lumen::fuzz::HttpReplies;
using lumen::fuzz::LiveServer;
using lumen::fuzz::of_four;
using lumen::fuzz::Steps;

// The certificate of the server, in a folder that goes with it.
class Certificate {
 public:
  Certificate() { lumen::test::write_certificate(path()); }
  [[nodiscard]] std::filesystem::path path() const { return folder_.path() / "server.pem"; }

 private:
  lumen::models::TempRepository folder_;
};

// What all connections of the client share: its last session.
struct Shared {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL_SESSION* session = nullptr;
  ~Shared() {
    SSL_SESSION_free(session);
    SSL_CTX_free(context);
  }
};

class Client final : public Connection {
 public:
  Client(LiveServer& server, Shared& shared, uint8_t choice)
      : Connection(server),
        shared_(shared),
        ssl_(SSL_new(shared.context), SSL_free),
        says_goodbye_((choice & 8) != 0) {
    if ((choice & 1) != 0) SSL_set_max_proto_version(ssl_.get(), TLS1_2_VERSION);
    if ((choice & 2) != 0 && shared.session != nullptr) {
      SSL_set_session(ssl_.get(), shared.session);
    }
    if ((choice & 4) != 0) SSL_set_tlsext_host_name(ssl_.get(), "test");
    from_server_ = BIO_new(BIO_s_mem());
    to_server_ = BIO_new(BIO_s_mem());
    BIO_set_mem_eof_return(from_server_, -1);
    SSL_set_bio(ssl_.get(), from_server_, to_server_);  // which owns them now
    SSL_set_connect_state(ssl_.get());
  }

  void begin(Steps& steps) {
    // A handshake of which the input cuts or breaks a part, or a whole one.
    if ((steps.byte() & 1) == 0) shake_hands();
  }

 private:
  void step(Steps& steps) override {
    switch (steps.byte() % 8) {
      case 0:
      case 1: infer(steps.byte()); break;
      case 2: another_key(steps.byte()); break;
      case 3: plain_text(steps.bytes(steps.byte())); break;
      case 4: shake_hands(); break;
      case 5:
      case 6: cut(steps.byte()); break;
      default: send_any(steps); break;
    }
  }
  void finish() override {
    if (says_goodbye_) {
      SSL_shutdown(ssl_.get());
      take_records();
    }
    end();
    replies_.check(is_whole());
    SSL_SESSION* const session = SSL_get1_session(ssl_.get());
    if (session == nullptr) return;
    SSL_SESSION_free(shared_.session);
    shared_.session = session;
  }

  void take_records() {
    std::array<char, 16384> bytes{};
    int got = 0;
    while ((got = BIO_read(to_server_, bytes.data(), bytes.size())) > 0) {
      send({bytes.data(), static_cast<size_t>(got)});
    }
  }

  void shake_hands() {
    while (!is_over() && SSL_do_handshake(ssl_.get()) != 1) {
      if (SSL_get_error(ssl_.get(), -1) != SSL_ERROR_WANT_READ || !is_whole()) break;
      take_records();
      flush();
      receive();
    }
    take_records();
  }

  // False: the handshake is not at its end, or the connection is.
  bool write(std::string_view bytes) {
    if (!SSL_is_init_finished(ssl_.get())) return false;
    size_t written = 0;
    const bool good = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &written) == 1;
    take_records();
    return good;
  }

  void infer(uint8_t form) {
    const uint8_t rows = (form & 8) != 0 ? 200 : 1;
    const float value = server().next_value();
    std::string tensor;
    std::string outputs;
    for (uint8_t i = 0; i < rows; ++i) {
      tensor += of_four(value);
      outputs += of_four(value + 1);
    }
    const std::string request = lumen::server::binary_infer("plus_one", "x", tensor, rows);
    // One record, or many of a few bytes.
    const size_t most = (form & 7) == 0 ? request.size() : size_t{97} * (form & 7);
    for (size_t at = 0; at < request.size(); at += most) {
      if (!write(std::string_view(request).substr(at, most))) return;
    }
    if (is_whole()) replies_.expect(std::move(outputs));
  }

  void plain_text(std::string_view bytes) {
    if (bytes.empty() || !write(bytes)) return;
    break_up();
  }

  void another_key(uint8_t how) {
    if (!SSL_is_init_finished(ssl_.get())) return;
    if (SSL_version(ssl_.get()) == TLS1_3_VERSION) {
      SSL_key_update(ssl_.get(),
                     how % 2 == 0 ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED);
      SSL_do_handshake(ssl_.get());
    } else {
      // Which no server should take up: the connection may end.
      SSL_renegotiate(ssl_.get());
      SSL_do_handshake(ssl_.get());
      break_up();
    }
    take_records();
  }

  void on_received(std::string_view bytes) override {
    BIO_write(from_server_, bytes.data(), static_cast<int>(bytes.size()));
    if (SSL_in_before(ssl_.get())) return;  // to read would begin the handshake
    std::array<char, 16384> plain{};
    size_t got = 0;
    while (SSL_read_ex(ssl_.get(), plain.data(), plain.size(), &got) == 1) {
      replies_.receive({plain.data(), got});
    }
    take_records();
  }

  Shared& shared_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
  bool says_goodbye_;
  BIO* from_server_;
  BIO* to_server_;
  HttpReplies replies_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Certificate certificate;
  static LiveServer server([](lumen::server::ServerOptions& options) {
    options.tls_cert = certificate.path();
    options.tls_key = certificate.path();
  });
  static Shared shared;
  Steps steps(data, size);
  const uint8_t choice = steps.byte();
  Client client(server, shared, choice);
  client.begin(steps);
  client.live(steps);
  return 0;
}
