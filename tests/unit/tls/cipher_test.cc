// A connection's TLS against OpenSSL's own client, over a network that cuts anywhere.
#include "transports/tls/cipher.h"

#include "support/certificate_file.h"

#include <lumen/transports/tls/certificates.h>

#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace lumen::tls {
namespace {

using Progress = Cipher::Progress;

// In the folder of temporary files, as long as it lives.
class CertificateFile {
 public:
  CertificateFile() : path_(std::filesystem::temp_directory_path() / name()) {
    test::write_certificate(path_);
  }
  ~CertificateFile() {
    std::error_code ignored;  // the system empties its temporary folder
    std::filesystem::remove(path_, ignored);
  }
  CertificateFile(const CertificateFile&) = delete;
  CertificateFile& operator=(const CertificateFile&) = delete;
  [[nodiscard]] std::string path() const { return path_; }

 private:
  static std::string name() { return "lumen-cipher-" + std::to_string(getpid()) + ".pem"; }
  std::filesystem::path path_;
};

class Client {
 public:
  Client() : context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free) {
    ssl_.reset(SSL_new(context_.get()));
    in_ = BIO_new(BIO_s_mem());
    out_ = BIO_new(BIO_s_mem());
    BIO_set_mem_eof_return(in_, -1);
    SSL_set_bio(ssl_.get(), in_, out_);
    SSL_set_connect_state(ssl_.get());
  }
  [[nodiscard]] SSL* ssl() const { return ssl_.get(); }
  // At most so many bytes, which leave it.
  std::string take(size_t most) {
    std::string bytes(most, '\0');
    const int got = BIO_read(out_, bytes.data(), static_cast<int>(most));
    bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return bytes;
  }
  void put(std::span<const char> bytes) {
    EXPECT_EQ(BIO_write(in_, bytes.data(), static_cast<int>(bytes.size())),
              static_cast<int>(bytes.size()));
  }

 private:
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_{nullptr, SSL_free};
  BIO* in_ = nullptr;
  BIO* out_ = nullptr;
};

class CipherTest : public testing::Test {
 protected:
  CipherTest() : in_(size_t{64} << 10), out_(size_t{96} << 10) {
    auto read = Certificates::load({.certificate = file_.path(), .key = {}, .client_ca = {}});
    EXPECT_TRUE(read.ok()) << read.status().message();
    certificates_ = std::move(*read);
    EXPECT_TRUE(cipher_.begin(*certificates_->current()));
    cipher_.lend(in_, out_);
  }
  // Of each side some bytes, in pieces of any size.
  void move_bytes() {
    const std::string bytes = client_.take(1 + random_() % 3000);
    const std::span<char> room = cipher_.room();
    ASSERT_LE(bytes.size(), room.size());
    std::ranges::copy(bytes, room.begin());
    cipher_.received(bytes.size());
    const std::span<char> leaving = cipher_.to_send();
    const size_t count = std::min<size_t>(leaving.size(), random_() % 3000);
    client_.put(leaving.first(count));
    cipher_.sent(count);
  }
  void shake_hands() {
    Progress progress = Progress::kWantsBytes;
    for (int i = 0; i < 10'000 && (progress != Progress::kDone || !is_client_done()); ++i) {
      (void)SSL_do_handshake(client_.ssl());
      move_bytes();
      if (progress != Progress::kDone) progress = cipher_.handshake();
      ASSERT_TRUE(progress == Progress::kDone || progress == Progress::kWantsBytes);
    }
    ASSERT_EQ(progress, Progress::kDone);
  }
  [[nodiscard]] bool is_client_done() const { return SSL_is_init_finished(client_.ssl()) == 1; }

  std::mt19937_64 random_{20261130};
  CertificateFile file_;
  std::unique_ptr<Certificates> certificates_;
  std::vector<char> in_;
  std::vector<char> out_;
  Client client_;
  Cipher cipher_;
};

TEST_F(CipherTest, BytesGoBothWaysInPiecesOfAnySizeAlsoAcrossNewKeys) {
  shake_hands();
  std::string to_server, at_server, to_client, at_client;
  for (int round = 0; round < 3000; ++round) {
    std::string piece(1 + random_() % 5000, '\0');
    for (char& letter : piece) letter = static_cast<char>(random_());
    if (random_() % 3 == 0 && to_server.size() < 2'000'000) {
      ASSERT_GT(SSL_write(client_.ssl(), piece.data(), static_cast<int>(piece.size())), 0);
      to_server += piece;
    }
    if (random_() % 3 == 0 && to_client.size() < 2'000'000 && cipher_.has_room()) {
      ASSERT_EQ(cipher_.write(piece), Progress::kDone);
      to_client += piece;
    }
    if (random_() % 100 == 0) {
      ASSERT_EQ(SSL_key_update(client_.ssl(), SSL_KEY_UPDATE_REQUESTED), 1);
    }
    move_bytes();
    std::vector<char> room(1 + random_() % 6000);
    size_t got = 0;
    const Progress progress = cipher_.read(room, got);
    ASSERT_TRUE(progress == Progress::kDone || progress == Progress::kWantsBytes);
    if (progress == Progress::kDone) at_server.append(room.data(), got);
    const int read = SSL_read(client_.ssl(), room.data(), static_cast<int>(room.size()));
    if (read > 0) at_client.append(room.data(), static_cast<size_t>(read));
  }
  EXPECT_GT(at_server.size(), 500'000u);
  EXPECT_GT(at_client.size(), 500'000u);
  EXPECT_TRUE(to_server.starts_with(at_server));
  EXPECT_TRUE(to_client.starts_with(at_client));
}

TEST_F(CipherTest, TheEndOfEitherSideIsTold) {
  shake_hands();
  SSL_shutdown(client_.ssl());
  Progress progress = Progress::kWantsBytes;
  for (int i = 0; i < 1000 && progress == Progress::kWantsBytes; ++i) {
    move_bytes();
    progress = cipher_.look();
  }
  EXPECT_EQ(progress, Progress::kEnded);
  cipher_.say_goodbye();
  for (int i = 0; i < 100; ++i) move_bytes();
  char byte = 0;
  EXPECT_EQ(SSL_read(client_.ssl(), &byte, 1), 0);
  EXPECT_EQ(SSL_get_shutdown(client_.ssl()) & SSL_RECEIVED_SHUTDOWN, SSL_RECEIVED_SHUTDOWN);
}

TEST_F(CipherTest, AnEndOfTheNetworkWithoutAGoodbyeIsAnEnd) {
  shake_hands();
  cipher_.has_ended();
  EXPECT_EQ(cipher_.look(), Progress::kEnded);
}

TEST_F(CipherTest, AnErrorOfAnotherConnectionIsNotTakenForItsOwn) {
  shake_hands();
  char byte = 0;
  size_t got = 0;
  ERR_raise(ERR_LIB_SSL, ERR_R_INTERNAL_ERROR);
  EXPECT_EQ(cipher_.read({&byte, 1}, got), Progress::kWantsBytes);
  ERR_raise(ERR_LIB_SSL, ERR_R_INTERNAL_ERROR);
  EXPECT_EQ(cipher_.look(), Progress::kWantsBytes);
}

TEST_F(CipherTest, ARecordThatWasChangedOnTheWayFails) {
  shake_hands();
  ASSERT_GT(SSL_write(client_.ssl(), "request", 7), 0);
  std::string bytes = client_.take(10'000);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ranges::copy(bytes, cipher_.room().begin());
  cipher_.received(bytes.size());
  EXPECT_EQ(cipher_.look(), Progress::kFailed);
}

TEST(CipherGarbageTest, RandomBytesNeverBecomeAConnection) {
  std::mt19937_64 random(7);
  const CertificateFile file;
  auto certificates = Certificates::load({.certificate = file.path(), .key = {}, .client_ca = {}});
  ASSERT_TRUE(certificates.ok());
  std::vector<char> in(size_t{64} << 10);
  std::vector<char> out(size_t{96} << 10);
  Client template_client;
  (void)SSL_do_handshake(template_client.ssl());
  const std::string hello = template_client.take(10'000);
  for (int round = 0; round < 2000; ++round) {
    Cipher cipher;
    ASSERT_TRUE(cipher.begin(*(*certificates)->current()));
    cipher.lend(in, out);
    // A hello with some bytes changed, or noise.
    std::string bytes = hello;
    for (uint64_t changes = 1 + random() % 6; changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (round % 4 == 0) std::ranges::generate(bytes, [&] { return static_cast<char>(random()); });
    std::ranges::copy(bytes, cipher.room().begin());
    cipher.received(bytes.size());
    EXPECT_NE(cipher.handshake(), Progress::kDone);
  }
}

}  // namespace
}  // namespace lumen::tls
