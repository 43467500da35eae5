// See the header.
#include <lumen/transports/tls/handshakes.h>

#include <lumen/base/clock.h>
#include <lumen/base/cpu.h>

#include <openssl/err.h>

#include <string>
#include <utility>

namespace lumen::tls {
namespace {

// A flood of them does not fill a log.
constexpr uint64_t kLineEveryNs = 1'000'000'000;

}  // namespace

Handshakes::Handshakes(const Certificates& certificates, Warn warn)
    : certificates_(certificates), warn_(std::move(warn)), thread_([this] { run(); }) {}

void Handshakes::join() {
  jobs_.stop();
  if (thread_.joinable()) thread_.join();
}

void Handshakes::run() noexcept {
  name_this_thread("lumen-tls");
  while (HandshakeJob* job = jobs_.take_all()) {
    while (job != nullptr) {
      HandshakeJob* const next = job->next;
      const unsigned long error = job->run(certificates_);  // and it may be gone
      if (error != 0) tell(error);
      job = next;
    }
  }
}

void Handshakes::tell(unsigned long error) noexcept {
  const uint64_t now = now_ns();
  if (warn_ == nullptr) return;
  if (told_ns_ != 0 && now - told_ns_ < kLineEveryNs) {
    ++untold_failures_;
    return;
  }
  told_ns_ = now;
  const char* const reason = ERR_reason_error_string(error);
  std::string text = "TLS: a handshake failed: ";
  text += reason == nullptr ? "OpenSSL has no words for error " + std::to_string(error) : reason;
  if (const uint64_t others = std::exchange(untold_failures_, 0); others > 0) {
    text.append("; ").append(std::to_string(others)).append(" more failed before it");
  }
  warn_(text);
}

}  // namespace lumen::tls
