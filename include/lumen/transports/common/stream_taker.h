// StreamTaker: takes connections over that another transport has accepted, since their first bytes
// speak its protocol.
// Threads: its I/O thread. Memory: none. Errors: take() says false.
#pragma once

#include <lumen/net/loop.h>

#include <span>

namespace lumen::transports {

class StreamTaker {
 public:
  // `received`: the bytes so far. From now on the stream is the taker's, with nothing in flight,
  // until it is closed: the taker then gives it its handler back, and passes on_closed() on. False:
  // it is the caller's still.
  [[nodiscard]] virtual bool take(net::Stream& stream, std::span<const char> received,
                                  bool is_local) noexcept = 0;

 protected:
  ~StreamTaker() = default;
};

}  // namespace lumen::transports
