// The loop that a server runs on, in a file of its own: a program that links another definition of
// make_loop() runs the server on another loop. See loop.h for threads, memory and errors.
#include <lumen/net/loop.h>

namespace lumen::net {

Result<std::unique_ptr<Loop>> make_loop(WakeHandler& wake_handler) {
  return make_epoll_loop(wake_handler);
}

}  // namespace lumen::net
