// Misuses of net that must not compile; run_nocompile.py says how this file is read.
#include <lumen/net/loop.h>
#include <lumen/net/socket.h>
#include <lumen/net/timeout_list.h>

#include <utility>

namespace lumen::net {

// The loop keeps pointers to its arguments.
void what_a_loop_points_to_stays_where_it_is(Stream& stream, TimeoutList& list) {
#ifdef WRONG
  const Stream moved = std::move(stream);         // error: deleted
  const TimeoutList elsewhere = std::move(list);  // error: deleted
#else
  static_cast<void>(stream.handler);
  static_cast<void>(list.duration_ns());
#endif
}
void a_stream_that_the_loop_refused_is_looked_at(Loop& loop, Stream& stream, Socket socket) {
#ifdef WRONG
  loop.add(stream, socket);  // error: ignoring return
#else
  if (!loop.add(stream, socket).ok()) return;
#endif
}
void a_handler_is_not_owned_by_its_loop(StreamHandler* handler) {
#ifdef WRONG
  delete handler;  // error: protected
#else
  static_cast<void>(handler);
#endif
}

}  // namespace lumen::net
