// ReserveDescriptor: given up for a moment when no descriptor is left, to refuse a connection
// politely: pending, it would keep its listener readable and the loop spinning.
// Threads: its loop's. Memory: none. Errors: another thread may take the number meanwhile; then it
// is invalid until one is free again, and nothing can be refused.
#pragma once

#include <lumen/base/unique_fd.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

namespace lumen::net {

class ReserveDescriptor {
 public:
  ReserveDescriptor() noexcept { restore(); }

  [[nodiscard]] bool valid() const noexcept { return fd_.valid(); }
  void restore() noexcept {
    if (!fd_.valid()) fd_ = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  // Accepts one connection and closes it. False: there is none, or no descriptor for it.
  [[nodiscard]] bool refuse_one(int listener_fd) noexcept {
    fd_.reset();
    // Looks first: the listener of some loops blocks (for its SO_RCVTIMEO at most, where another
    // thread takes the connection between the two calls).
    pollfd pending{.fd = listener_fd, .events = POLLIN, .revents = 0};
    bool has_refused = false;
    if (::poll(&pending, 1, 0) == 1) {
      has_refused = UniqueFd(::accept4(listener_fd, nullptr, nullptr, SOCK_CLOEXEC)).valid();
    }
    restore();
    return has_refused;
  }

 private:
  UniqueFd fd_;
};

}  // namespace lumen::net
