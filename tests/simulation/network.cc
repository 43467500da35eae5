// The simulated loop, which make_loop() makes in this program, and the sockets that servers listen
// on, which are none. See the header for threads, memory and errors.
#include "simulation/network.h"

#include "simulation/fibers.h"

#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <set>
#include <span>
#include <vector>

namespace lumen::sim {

Faults faults;
std::function<void()> on_turn = [] {};

namespace {

constexpr char kPoison = '\x5a';  // in buffers that are not lent
constexpr size_t kMostPoison = 256;
constexpr size_t kLentBytes = 512;
constexpr size_t kLentBuffers = 3;

std::vector<SimLoop*> loops;
std::vector<std::shared_ptr<Wire>> wires;  // by Socket::number
std::set<int> tcp_sockets;
size_t streams_open = 0;
size_t lent_out = 0;

}  // namespace

enum class Kind : uint8_t { kNone, kWait, kData, kDrop };

struct SimStream {
  net::Stream* outer = nullptr;
  std::shared_ptr<Wire> wire;
  Kind receiving = Kind::kNone;
  bool cancelled = false;
  bool must_tell = false;  // look_now() has said that it moved
  std::span<iovec> buffers;
  size_t poisoned = 0;
  char poison = 0;  // of its own, so that another's in the same memory is seen
  bool sending = false;
  uint64_t send_total = 0;
  uint64_t taken = 0;        // of the send in flight
  std::deque<iovec> flying;  // bytes that the kernel has still to read
  bool gone_told = false;
  bool closing = false;
  uint64_t close_turn = 0;
};

class SimLoop final : public net::Loop {
 public:
  explicit SimLoop(net::WakeHandler& wake_handler) : wake_handler_(wake_handler) {
    for (auto& buffer : lendable_) free_lendable_.emplace_back(buffer);
    loops.push_back(this);
  }
  ~SimLoop() override { std::erase(loops, this); }

  const char* name() const noexcept override { return "simulated"; }
  Status add(net::Stream& stream, net::Socket socket) noexcept override;
  void close(net::Stream& stream, Closing how) noexcept override;
  Status add(net::Listener& listener) noexcept override {
    listeners_.push_back(&listener);
    return {};
  }
  void remove(net::Listener& listener) noexcept override {
    std::erase(listeners_, &listener);
    std::erase_if(incoming_, [&](const Incoming& one) {
      if (one.listener == &listener) refuse(*one.wire);
      return one.listener == &listener;
    });
    listener.fd.reset();
  }
  void wait_readable(net::Stream& stream) noexcept override { ask(stream, Kind::kWait, {}); }
  void give_back(std::span<char> lent) noexcept override;
  void receive(net::Stream& stream, std::span<iovec> buffers) noexcept override {
    ask(stream, Kind::kData, buffers);
  }
  void drop(net::Stream& stream, std::span<iovec> buffers) noexcept override {
    ask(stream, Kind::kDrop, buffers);
  }
  void cancel_receive(net::Stream& stream) noexcept override { of(stream).cancelled = true; }
  void send(net::Stream& stream, std::span<iovec> buffers) noexcept override;
  uint64_t sent_so_far(net::Stream& stream) noexcept override { return of(stream).taken; }
  bool look_now(net::Stream& stream) noexcept override;
  bool end_sending(net::Stream& stream) noexcept override;
  void limit_unsent_time(net::Stream&, uint64_t) noexcept override {}
  bool had_unread(net::Stream& stream) noexcept override { return is_readable(*of(stream).wire); }
  bool had_unsent(net::Stream& stream) noexcept override {
    return !of(stream).wire->to_client.empty();
  }
  std::optional<PeerCredentials> peer_credentials(net::Stream&) noexcept override {
    return std::nullopt;
  }
  std::optional<sockaddr_storage> own_address(net::Stream&) noexcept override {
    return std::nullopt;
  }
  size_t run_once(uint64_t deadline_ns) noexcept override;
  void wake() noexcept override;
  uint64_t last_turn_ns() const noexcept override { return last_turn_ns_; }
  uint64_t wakeups() const noexcept override { return wakeups_; }

  // --- for clients -------------------------------------------------------------------------------
  [[nodiscard]] bool connect(const std::shared_ptr<Wire>& wire, bool local);
  // Something came over the network.
  void notify() noexcept { (void)sim::wake(this, 1); }

 private:
  struct Incoming {
    std::shared_ptr<Wire> wire;
    net::Listener* listener;
  };

  static SimStream& of(net::Stream& stream) noexcept { return *stream.state<SimStream*>(); }
  static bool is_readable(const Wire& wire) noexcept {
    return !wire.to_server.empty() || wire.client_ended || wire.client_reset;
  }
  static void refuse(Wire& wire) noexcept {
    wire.was_refused = wire.server_closed = true;
    (void)sim::wake(&wire, SIZE_MAX);
  }
  void ask(net::Stream& stream, Kind kind, std::span<iovec> buffers) noexcept;
  [[nodiscard]] bool can_deliver(const SimStream& one) const noexcept;
  [[nodiscard]] bool has_work() const noexcept;
  bool transfer(SimStream& one, bool all) noexcept;
  size_t deliver_some() noexcept;
  size_t accept_some() noexcept;
  size_t deliver(SimStream& one) noexcept;
  void tell_readable(SimStream& one) noexcept;
  void tell_received(SimStream& one) noexcept;
  void tell_closed(SimStream& one) noexcept;

  net::WakeHandler& wake_handler_;
  std::vector<net::Listener*> listeners_;
  std::deque<Incoming> incoming_;
  std::vector<std::unique_ptr<SimStream>> streams_;
  std::array<std::array<char, kLentBytes>, kLentBuffers> lendable_{};
  std::vector<std::span<char>> free_lendable_;
  bool woken_ = false;
  bool asleep_ = false;
  uint64_t turn_ = 0;
  uint64_t turn_began_ns_ = 0;
  uint64_t last_turn_ns_ = 0;
  uint64_t wakeups_ = 0;
};

Status SimLoop::add(net::Stream& stream, net::Socket socket) noexcept {
  auto made = std::make_unique<SimStream>();
  made->outer = &stream;
  made->wire = wires[static_cast<size_t>(socket.number)];
  stream.begin(made.get());
  streams_.push_back(std::move(made));
  ++streams_open;
  return {};
}

void SimLoop::ask(net::Stream& stream, Kind kind, std::span<iovec> buffers) noexcept {
  SimStream& one = of(stream);
  if (one.receiving != Kind::kNone || one.closing) fail("a receive while there is one");
  one.receiving = kind;
  one.cancelled = false;
  one.buffers = buffers;
  one.poisoned = 0;
  if (kind != Kind::kData) return;
  if (buffers.empty() || buffers.front().iov_len == 0) fail("a receive into nothing");
  one.poisoned = std::min(kMostPoison, buffers.front().iov_len);
  one.poison = static_cast<char>(random().next());
  std::memset(buffers.front().iov_base, one.poison, one.poisoned);
}

void SimLoop::send(net::Stream& stream, std::span<iovec> buffers) noexcept {
  SimStream& one = of(stream);
  if (one.sending || one.closing) fail("a send while there is one");
  one.sending = true;
  one.taken = 0;
  one.send_total = 0;
  for (iovec& buffer : buffers) {
    one.send_total += buffer.iov_len;
    one.flying.push_back(buffer);
    buffer = {};
  }
}

void SimLoop::close(net::Stream& stream, Closing how) noexcept {
  SimStream& one = of(stream);
  if (one.closing) fail("a stream is closed twice");
  one.closing = true;
  one.close_turn = turn_ + 1 + random().below(4);
  one.flying.clear();
  Wire& wire = *one.wire;
  wire.server_closed = true;
  wire.server_ended = true;
  if (how == Closing::kReset) {
    wire.server_reset = true;
    wire.lost_reply = !wire.to_client.empty();
    wire.to_client.clear();
  }
  (void)sim::wake(&wire, SIZE_MAX);
}

void SimLoop::give_back(std::span<char> lent) noexcept {
  for (auto& buffer : lendable_) {
    if (buffer.data() != lent.data()) continue;
    buffer.fill(kPoison);
    free_lendable_.emplace_back(buffer);
    --lent_out;
    return;
  }
  fail("a buffer is given back that was not lent");
}

bool SimLoop::end_sending(net::Stream& stream) noexcept {
  Wire& wire = *of(stream).wire;
  if (wire.client_reset) return false;
  wire.server_ended = true;
  (void)sim::wake(&wire, SIZE_MAX);
  return true;
}

// The part of a send that the kernel takes. True: something.
bool SimLoop::transfer(SimStream& one, bool all) noexcept {
  Wire& wire = *one.wire;
  if (wire.client_reset) return false;
  bool moved = false;
  while (!one.flying.empty()) {
    iovec& first = one.flying.front();
    const size_t room = wire.window - std::min(wire.window, wire.to_client.size());
    size_t bytes = std::min(room, first.iov_len);
    if (bytes > 1 && !all && random().one_in(4)) bytes = 1 + random().below(bytes);
    if (bytes == 0 && first.iov_len > 0) break;
    wire.to_client.append(static_cast<const char*>(first.iov_base), bytes);
    first.iov_base = static_cast<char*>(first.iov_base) + bytes;
    first.iov_len -= bytes;
    one.taken += bytes;
    moved = true;
    if (first.iov_len > 0) break;
    one.flying.pop_front();
  }
  if (moved) (void)sim::wake(&wire, SIZE_MAX);
  return moved;
}

bool SimLoop::look_now(net::Stream& stream) noexcept {
  SimStream& one = of(stream);
  bool moved = one.sending && transfer(one, true);
  if (can_deliver(one)) moved = one.must_tell = true;
  return moved;
}

bool SimLoop::can_deliver(const SimStream& one) const noexcept {
  const Wire& wire = *one.wire;
  if (one.closing) return true;
  if (one.sending) {
    if (one.flying.empty() || wire.client_reset || wire.to_client.size() < wire.window) return true;
  }
  if (one.receiving != Kind::kNone) return one.cancelled || is_readable(wire);
  return wire.client_reset && !one.sending && !one.gone_told;
}

bool SimLoop::has_work() const noexcept {
  return !incoming_.empty() ||
         std::ranges::any_of(streams_, [this](const auto& one) { return can_deliver(*one); });
}

void SimLoop::tell_closed(SimStream& one) noexcept {
  if (one.poisoned > 0 && one.receiving == Kind::kData) {
    const auto* bytes = static_cast<const char*>(one.buffers.front().iov_base);
    if (!std::all_of(bytes, bytes + one.poisoned, [&](char byte) { return byte == one.poison; })) {
      fail("a buffer was used before on_closed()");
    }
  }
  net::Stream& outer = *one.outer;
  std::erase_if(streams_, [&](const auto& other) { return other.get() == &one; });
  --streams_open;
  outer.handler->on_closed(outer);
}

void SimLoop::tell_readable(SimStream& one) noexcept {
  Wire& wire = *one.wire;
  one.receiving = Kind::kNone;
  std::span<char> lent;
  if (!wire.to_server.empty() && !wire.client_reset && !free_lendable_.empty() &&
      random().one_in(2)) {
    const size_t bytes = 1 + random().below(std::min(kLentBytes, wire.to_server.size()));
    lent = free_lendable_.back().first(bytes);
    free_lendable_.pop_back();
    ++lent_out;
    std::memcpy(lent.data(), wire.to_server.data(), bytes);
    wire.to_server.erase(0, bytes);
    wire.delivered += bytes;
    (void)sim::wake(&wire, SIZE_MAX);
  }
  one.outer->handler->on_readable(*one.outer, lent);
}

void SimLoop::tell_received(SimStream& one) noexcept {
  Wire& wire = *one.wire;
  const Kind kind = std::exchange(one.receiving, Kind::kNone);
  int64_t result = 0;
  if (wire.client_reset) {
    result = -ECONNRESET;
  } else if (one.cancelled) {
    result = -ECANCELED;
  } else if (!wire.to_server.empty()) {
    size_t room = 0;
    for (const iovec& buffer : one.buffers) room += buffer.iov_len;
    size_t bytes = std::min(room, wire.to_server.size());
    if (random().one_in(3)) bytes = 1 + random().below(bytes);
    size_t at = 0;
    for (const iovec& buffer : one.buffers) {
      const size_t piece = std::min(buffer.iov_len, bytes - at);
      if (kind == Kind::kData) std::memcpy(buffer.iov_base, wire.to_server.data() + at, piece);
      at += piece;
      if (at == bytes) break;
    }
    wire.to_server.erase(0, bytes);
    wire.delivered += bytes;
    result = static_cast<int64_t>(bytes);
    (void)sim::wake(&wire, SIZE_MAX);
  }
  one.outer->handler->on_received(*one.outer, result);
}

size_t SimLoop::deliver(SimStream& one) noexcept {
  if (one.closing) {
    if (turn_ < one.close_turn) return 0;
    tell_closed(one);
    return 1;
  }
  const Wire& wire = *one.wire;
  one.must_tell = false;
  if (one.sending || !one.flying.empty()) (void)transfer(one, false);
  const bool too_early = faults.early_reuse && !one.flying.empty() && random().one_in(4);
  if (one.sending && (one.flying.empty() || wire.client_reset || too_early)) {
    one.sending = false;
    const bool is_broken = wire.client_reset;
    if (is_broken) one.flying.clear();
    one.outer->handler->on_sent(*one.outer,
                                is_broken ? -EPIPE : static_cast<int64_t>(one.send_total));
    return 1;
  }
  if (one.receiving == Kind::kWait && (one.cancelled || is_readable(wire))) {
    if (one.cancelled) {
      tell_received(one);
    } else {
      tell_readable(one);
    }
    return 1;
  }
  if (one.receiving != Kind::kNone && (one.cancelled || is_readable(wire))) {
    tell_received(one);
    return 1;
  }
  if (one.receiving == Kind::kNone && !one.sending && wire.client_reset && !one.gone_told) {
    one.gone_told = true;
    one.outer->handler->on_gone(*one.outer);
    return 1;
  }
  return 0;
}

size_t SimLoop::accept_some() noexcept {
  size_t ran = 0;
  while (!incoming_.empty() && !random().one_in(4)) {
    const Incoming one = incoming_.front();
    incoming_.pop_front();
    wires.push_back(one.wire);
    const net::Socket socket{static_cast<int>(wires.size() - 1)};
    if (!one.listener->handler->on_accepted(socket)) refuse(*one.wire);
    ++ran;
  }
  return ran;
}

size_t SimLoop::deliver_some() noexcept {
  size_t ran = 0;
  std::vector<SimStream*> order;
  for (const auto& one : streams_) {
    if (can_deliver(*one)) order.push_back(one.get());
  }
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random().below(i)]);
  for (SimStream* one : order) {
    // A handler may have closed another's, but only a turn takes a stream away.
    if (!one->must_tell && random().one_in(4)) continue;  // later
    ran += deliver(*one);
    may_switch();
    if (random().one_in(6)) ran += wake_handler_.on_wake();
  }
  return ran;
}

size_t SimLoop::run_once(uint64_t deadline_ns) noexcept {
  ++turn_;
  on_turn();
  last_turn_ns_ = turn_began_ns_ == 0 ? 0 : time_ns() - turn_began_ns_;
  size_t ran = 0;
  may_switch();
  if (!has_work() && !woken_) {
    ran += wake_handler_.on_wake();
    may_switch();
    if (ran == 0 && !has_work() && !woken_ && deadline_ns > time_ns()) {
      ++wakeups_;
      asleep_ = true;
      (void)wait_on(this, deadline_ns);
      asleep_ = false;
    }
  }
  turn_began_ns_ = time_ns();
  ran += accept_some();
  for (int round = 0; round < 2; ++round) {
    woken_ = false;
    ran += wake_handler_.on_wake();
    ran += deliver_some();
    may_switch();
    const size_t done = wake_handler_.on_turn_end();
    ran += done;
    if (done == 0) break;
  }
  return ran;
}

void SimLoop::wake() noexcept {
  may_switch();
  if (!asleep_ && faults.lost_wake_up) return;
  woken_ = true;
  notify();
}

bool SimLoop::connect(const std::shared_ptr<Wire>& wire, bool local) {
  for (net::Listener* listener : listeners_) {
    if (tcp_sockets.contains(listener->fd.get()) == local) continue;
    wire->loop = this;
    incoming_.push_back({wire, listener});
    notify();
    return true;
  }
  return false;
}

std::shared_ptr<Wire> connect_wire(bool local) {
  auto wire = std::make_shared<Wire>();
  if (loops.empty()) return nullptr;
  SimLoop& loop = *loops[random().below(loops.size())];
  return loop.connect(wire, local) ? wire : nullptr;
}

void write_wire(Wire& wire, std::string_view bytes) {
  if (wire.is_over()) return;
  wire.to_server.append(bytes);
  wire.loop->notify();
}

std::string read_wire(Wire& wire, uint64_t deadline_ns) {
  while (wire.to_client.empty()) {
    if (wire.server_ended || wire.server_reset || wire.server_closed) return {};
    if (!wait_on(&wire, deadline_ns)) break;
  }
  if (wire.to_client.empty()) return {};
  const size_t bytes =
      random().one_in(4) ? 1 + random().below(wire.to_client.size()) : wire.to_client.size();
  std::string text = wire.to_client.substr(0, bytes);
  wire.to_client.erase(0, bytes);
  if (!wire.server_closed) wire.loop->notify();
  return text;
}

void end_wire(Wire& wire) {
  wire.client_ended = true;
  if (!wire.is_over()) wire.loop->notify();
}

void reset_wire(Wire& wire) {
  wire.client_reset = true;
  wire.to_server.clear();
  if (!wire.is_over()) wire.loop->notify();
}

void begin_network() {
  // With its memory: a list that has grown would look like a leak of the world before.
  std::vector<std::shared_ptr<Wire>>().swap(wires);
  tcp_sockets.clear();
  streams_open = lent_out = 0;
}

void expect_nothing_left() {
  if (streams_open != 0) fail("%zu streams are left", streams_open);
  if (lent_out != 0) fail("%zu lent buffers are left", lent_out);
}

}  // namespace lumen::sim

namespace lumen::net {
Result<LoopChoice> choose_loop(LoopKind) { return LoopChoice{LoopKind::kEpoll, "simulated"}; }

Result<std::unique_ptr<Loop>> make_loop(LoopKind, WakeHandler& wake_handler) {
  return std::unique_ptr<Loop>(std::make_unique<sim::SimLoop>(wake_handler));
}
}  // namespace lumen::net

// The servers' listeners: descriptors of nothing.
extern "C" {

int socket(int domain, int, int) noexcept {
  const int fd = ::memfd_create("listener", MFD_CLOEXEC);  // whose mode may be changed
  if (domain == AF_INET) lumen::sim::tcp_sockets.insert(fd);
  return fd;
}
int bind(int, const sockaddr* address, socklen_t) noexcept {
  if (address->sa_family != AF_UNIX) return 0;
  const auto* path = reinterpret_cast<const sockaddr_un*>(address)->sun_path;
  return ::mknod(path, S_IFSOCK | 0660, 0);
}
int listen(int, int) noexcept { return 0; }
int setsockopt(int, int, int, const void*, socklen_t) noexcept { return 0; }
int getsockname(int, sockaddr* address, socklen_t*) noexcept {
  address->sa_family = AF_INET;
  reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(8000);
  return 0;
}

}  // extern "C"
