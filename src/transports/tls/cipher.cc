// See the header. A BIO of our own lies between OpenSSL and the buffers.
#include "transports/tls/cipher.h"

#include <lumen/base/check.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace lumen::tls {
namespace {

int read_bio(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  Cipher& cipher = *static_cast<Cipher*>(BIO_get_data(bio));
  const int got = cipher.take_in(data, size);
  if (got > 0) return got;
  if (cipher.in_has_ended()) return 0;
  BIO_set_retry_read(bio);
  return -1;
}

int write_bio(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  const int put = static_cast<Cipher*>(BIO_get_data(bio))->put_out(data, size);
  if (put > 0) return put;
  BIO_set_retry_write(bio);
  return -1;
}

long control_bio(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  // SSL_read() is told of an end by it.
  if (command == BIO_CTRL_EOF) return static_cast<Cipher*>(BIO_get_data(bio))->in_has_ended();
  return 0;
}

// For the process's life.
BIO_METHOD* bio_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "lumen");
    LUMEN_CHECK(made != nullptr);
    BIO_meth_set_read(made, read_bio);
    BIO_meth_set_write(made, write_bio);
    BIO_meth_set_ctrl(made, control_bio);
    BIO_meth_set_create(made, [](BIO* bio) {
      BIO_set_init(bio, 1);
      return 1;
    });
    return made;
  }();
  return method;
}

}  // namespace

bool Cipher::begin(SSL_CTX& context) noexcept {
  ssl_ = SSL_new(&context);
  BIO* const bio = ssl_ == nullptr ? nullptr : BIO_new(bio_method());
  if (bio == nullptr) {
    end();
    return false;
  }
  BIO_set_data(bio, this);
  SSL_set_bio(ssl_, bio, bio);  // which is its owner now
  SSL_set_accept_state(ssl_);
  return true;
}

void Cipher::end() noexcept {
  SSL_free(std::exchange(ssl_, nullptr));
  in_begin_ = in_end_ = out_end_ = 0;
  in_has_ended_ = false;
}

void Cipher::lend(std::span<char> in, std::span<char> out) noexcept {
  in_ = in;
  out_ = out;
  in_begin_ = in_end_ = out_end_ = 0;
}

Cipher::Progress Cipher::progress_of(int outcome) noexcept {
  if (outcome > 0) return Progress::kDone;
  const int error = SSL_get_error(ssl_, outcome);
  error_ = ERR_peek_error();
  ERR_clear_error();
  if (error == SSL_ERROR_WANT_READ) return Progress::kWantsBytes;
  return error == SSL_ERROR_ZERO_RETURN ? Progress::kEnded : Progress::kFailed;
}

bool Cipher::has_resumed() const noexcept { return SSL_session_reused(ssl_) == 1; }

Cipher::Progress Cipher::handshake() noexcept {
  ERR_clear_error();
  return progress_of(SSL_do_handshake(ssl_));
}

// An error that an earlier call of this thread has left would be taken for this one's: the queue of
// errors is the thread's, so each call begins with an empty one.
Cipher::Progress Cipher::read(std::span<char> room, size_t& got) noexcept {
  ERR_clear_error();
  return progress_of(SSL_read_ex(ssl_, room.data(), room.size(), &got));
}

Cipher::Progress Cipher::look() noexcept {
  char byte = 0;
  size_t got = 0;
  ERR_clear_error();
  return progress_of(SSL_peek_ex(ssl_, &byte, 1, &got));
}

bool Cipher::has_unread() const noexcept {
  return in_begin_ != in_end_ || (ssl_ != nullptr && SSL_has_pending(ssl_) == 1);
}

Cipher::Progress Cipher::write(std::span<const char> plain) noexcept {
  size_t written = 0;
  ERR_clear_error();
  const Progress progress = progress_of(SSL_write_ex(ssl_, plain.data(), plain.size(), &written));
  return progress == Progress::kDone ? progress : Progress::kFailed;
}

void Cipher::say_goodbye() noexcept {
  if (ssl_ == nullptr) return;
  (void)SSL_shutdown(ssl_);
  ERR_clear_error();
}

std::span<char> Cipher::room() noexcept {
  if (in_begin_ == in_end_) {
    in_begin_ = in_end_ = 0;
  } else if (in_.size() - in_end_ < kRecordBytes) {
    std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= std::exchange(in_begin_, 0);
  }
  return in_.subspan(in_end_);
}

void Cipher::sent(size_t bytes) noexcept {
  std::memmove(out_.data(), out_.data() + bytes, out_end_ - bytes);
  out_end_ -= bytes;
}

int Cipher::take_in(char* data, int size) noexcept {
  const size_t bytes = std::min(static_cast<size_t>(size), in_end_ - in_begin_);
  if (bytes == 0) return 0;
  std::memcpy(data, in_.data() + in_begin_, bytes);
  in_begin_ += bytes;
  return static_cast<int>(bytes);
}

int Cipher::put_out(const char* data, int size) noexcept {
  const auto bytes = static_cast<size_t>(size);
  if (bytes > out_.size() - out_end_) return 0;
  std::memcpy(out_.data() + out_end_, data, bytes);
  out_end_ += bytes;
  return size;
}

}  // namespace lumen::tls
