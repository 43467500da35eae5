// StreamTaker: takes connections over that another transport has accepted, since their first bytes
// speak its protocol. RequestTaker: the other way, serves single requests that came by them.
// ConnectionTaker: serves connections whose bytes another transport moves, as that of TLS does.
// Threads: its I/O thread. Memory: none. Errors: take() says false.
#pragma once

#include <lumen/net/loop.h>

#include <span>

namespace lumen::transports {

class RequestTaker {
 public:
  // A connection of HTTP/1.1 with one request, whose bytes `loop` moves: it is handed to add() of
  // that. False: all that can be served at once are in use.
  [[nodiscard]] virtual bool take(net::Loop& loop, net::Socket socket, bool is_local) noexcept = 0;

 protected:
  ~RequestTaker() = default;
};

class ConnectionTaker {
 public:
  // A connection whose bytes `loop` moves: goes to add() of that. False: there are too many.
  [[nodiscard]] virtual bool accept(net::Loop& loop, net::Socket socket,
                                    bool is_local) noexcept = 0;

 protected:
  ~ConnectionTaker() = default;
};

// Moves the bytes of connections that it has accepted.
class ConnectionGiver {
 public:
  // Once, before serving.
  virtual void pass_connections_to(ConnectionTaker& taker) noexcept = 0;

 protected:
  ~ConnectionGiver() = default;
};

class StreamTaker {
 public:
  // `loop`: moves the stream's bytes. `received`: the bytes so far. From now on the stream is the
  // taker's, with nothing in flight, until it is closed: the taker then gives it its handler back,
  // and passes on_closed() on. False: it is the caller's still.
  [[nodiscard]] virtual bool take(net::Loop& loop, net::Stream& stream,
                                  std::span<const char> received, bool is_local) noexcept = 0;
  // Requests on its connections that are not of its own protocol go there. Once, before serving.
  virtual void pass_requests_to(RequestTaker& taker) noexcept = 0;

 protected:
  ~StreamTaker() = default;
};

}  // namespace lumen::transports
