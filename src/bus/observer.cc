// The observer's side of the listener's socket. Control plane. Errors: Result.
#include <lumen/bus/observer.h>

#include <lumen/base/clock.h>
#include <lumen/bus/peer.h>

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "bus/connect_socket.h"
#include "bus/handshake.h"

namespace lumen::bus {
namespace {

constexpr uint64_t kPatienceNs = 1'000'000'000;
// A ring with all its rows of types.
constexpr size_t kMostAnswerBytes = sizeof(RingFigures) + kCountedTypes * sizeof(TypeFigures);

}  // namespace

Result<Observer> Observer::connect(const std::string& path) {
  Patience patience(now_ns() + kPatienceNs);
  auto socket = connect_socket(path, false, patience);
  if (!socket.ok()) return socket.status();
  Hello hello;
  hello.role = kObserve;
  if (::send(socket->get(), &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) {
    return Status::from_errno(errno, "bus %s: the listener has closed the connection",
                              path.c_str());
  }
  return Observer(std::move(socket).value());
}

Result<std::vector<RingReport>> Observer::read() {
  const char byte = 0;
  if (::send(socket_.get(), &byte, 1, MSG_NOSIGNAL) != 1) {
    return Status::from_errno(errno, "bus: asking the listener");
  }
  std::vector<RingReport> rings;
  std::vector<uint64_t> message(kMostAnswerBytes / sizeof(uint64_t));
  for (;;) {
    std::array<pollfd, 1> fds = {pollfd{socket_.get(), POLLIN, 0}};
    if (sleep_on(fds, now_ns() + kPatienceNs) == Woken::kTimedOut) {
      return Status::error(Code::kDeadlineExceeded, "bus: the listener has not answered in time");
    }
    const ssize_t got = ::recv(socket_.get(), message.data(), kMostAnswerBytes, MSG_DONTWAIT);
    if (got == 0) return Status::error(Code::kUnavailable, "bus: the listener has ended");
    if (got == sizeof(uint64_t)) return rings;  // that was all
    if (got == sizeof(Welcome)) {
      Welcome refused;
      std::memcpy(static_cast<void*>(&refused), message.data(), sizeof(refused));
      refused.text.back() = '\0';
      return Status::error(Code::kForbidden, "bus: refused: %s", refused.text.data());
    }
    RingReport report;
    if (got < static_cast<ssize_t>(sizeof(report.ring))) {
      return Status::error(Code::kInvalidArgument, "bus: got an answer of %zd bytes, wanted %zu",
                           got, sizeof(report.ring));
    }
    std::memcpy(static_cast<void*>(&report.ring), message.data(), sizeof(report.ring));
    const size_t rows = (static_cast<size_t>(got) - sizeof(report.ring)) / sizeof(TypeFigures);
    report.types.resize(rows);
    std::memcpy(static_cast<void*>(report.types.data()),
                message.data() + sizeof(report.ring) / sizeof(uint64_t),
                rows * sizeof(TypeFigures));
    rings.push_back(std::move(report));
  }
}

}  // namespace lumen::bus
