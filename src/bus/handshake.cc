// Messages with descriptors over a unix socket. Any thread. Memory: none. Errors: Status, or false.
#include "bus/handshake.h"

#include <lumen/base/clock.h>
#include <lumen/bus/peer.h>

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lumen::bus {
namespace {

union Control {
  cmsghdr header;
  std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> bytes;
};

// Takes every descriptor that came, so that none is left open by a message that is refused.
size_t take_descriptors(msghdr& message, std::array<UniqueFd, kMostDescriptors>& into) noexcept {
  size_t count = 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t here = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < here; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
      UniqueFd owned(fd);
      if (count < into.size()) into[count++] = std::move(owned);
    }
  }
  return count;
}

}  // namespace

bool send_with_descriptors(int socket, const Welcome& welcome,
                           std::span<const int> descriptors) noexcept {
  Control control{};
  iovec bytes{const_cast<Welcome*>(&welcome), sizeof(welcome)};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
  }
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(welcome);
}

Result<ReceivedWelcome> receive_welcome(int socket, Patience& patience) {
  std::array<pollfd, 1> fds = {pollfd{socket, POLLIN, 0}};
  for (;;) {
    const Woken woken = patience.sleep(fds);
    if (woken == Woken::kEvent) break;
    if (woken == Woken::kInterrupted) {
      return Status::error(Code::kCancelled,
                           "bus: a signal came while the listener was waited for");
    }
    if (woken == Woken::kTimedOut) {
      return Status::error(Code::kDeadlineExceeded,
                           "bus: the listener has not answered in time; is it stopped?");
    }
  }
  ReceivedWelcome received;
  Control control{};
  iovec bytes{&received.welcome, sizeof(received.welcome)};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = sizeof(control.bytes);
  ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  // A listener that has refused without reading the hello resets the connection; its answer is
  // behind that.
  if (got < 0 && errno == ECONNRESET) {
    message.msg_controllen = sizeof(control.bytes);
    got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  }
  const int error = errno;
  // A message of no bytes may bring some too.
  if (got >= 0) received.descriptor_count = take_descriptors(message, received.descriptors);
  if (got <= 0) {
    return Status::error(Code::kUnavailable, "bus: the listener has closed the connection (%s)",
                         got == 0 ? "no answer" : std::strerror(error));
  }
  const bool is_whole = got == sizeof(received.welcome) &&
                        (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
                        received.welcome.magic == kMagic;
  if (!is_whole) {
    return Status::error(Code::kInvalidArgument,
                         "bus: got an answer of %zd bytes that is no welcome of this protocol "
                         "(wanted %zu); is it Lumen's bus that listens there?",
                         got, sizeof(received.welcome));
  }
  return received;
}

Welcome refusal(Answer answer, std::string_view text) noexcept {
  Welcome welcome;
  welcome.answer = answer;
  const size_t bytes = std::min(text.size(), welcome.text.size() - 1);
  std::memcpy(welcome.text.data(), text.data(), bytes);
  return welcome;
}

}  // namespace lumen::bus
