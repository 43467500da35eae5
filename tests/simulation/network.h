// Network: the connections of a simulated world, and the loop that servers in it run on. The
// kernel's part is played by chance: bytes are cut, delayed and reordered between connections
// wherever it may do so, buffers are held until the completion is told, and some first bytes come
// in a lent buffer.
// Threads: fibers. Memory: the heap. Errors: a broken contract ends the world.
#pragma once

#include <lumen/net/loop.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace lumen::sim {

// Faults that tests plant, to see them found.
struct Faults {
  bool lost_wake_up = false;       // a wake() while the loop is awake is forgotten
  bool double_completion = false;  // a backend tells twice that a request is done
  bool early_reuse = false;        // on_sent() before the kernel has read the buffers
  bool fifo_policy = false;        // worlds with a heavy and a light model have the policy fifo
};
extern Faults faults;

// Called on a loop's thread when it begins a turn.
extern std::function<void()> on_turn;

class SimLoop;

// A connection. The client's end is these members, the server's a stream of the loop.
struct Wire {
  std::string to_server;
  std::string to_client;
  size_t window = 64 * 1024;  // of to_client
  size_t delivered = 0;       // bytes that the server's handlers have had
  bool client_ended = false;  // FIN
  bool client_reset = false;
  bool server_ended = false;  // FIN, or an orderly close
  bool server_reset = false;
  bool server_closed = false;
  bool was_refused = false;
  // The server has sent bytes that the client had not read when it was reset.
  bool lost_reply = false;
  SimLoop* loop = nullptr;

  [[nodiscard]] bool is_over() const noexcept { return server_reset || server_closed; }
};

// --- for clients: fibers -------------------------------------------------------------------------
// nullptr: nobody listens any more.
[[nodiscard]] std::shared_ptr<Wire> connect_wire(bool local);
void write_wire(Wire& wire, std::string_view bytes);
// The bytes that are there; waits for some until the time. Empty: the end, a reset, or the time.
[[nodiscard]] std::string read_wire(Wire& wire, uint64_t deadline_ns);
void end_wire(Wire& wire);
void reset_wire(Wire& wire);

// How many streams and lent buffers are left in loops that have gone.
void begin_network();
void expect_nothing_left();

}  // namespace lumen::sim
