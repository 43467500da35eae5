// The late loop: an epoll loop inside, whose streams have the outer ones' operations a few turns
// later. See the header for threads, memory and errors.
#include "support/late_loop.h"

#include <lumen/base/check.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::net {
namespace {

// A receive takes no more than this at a time, which is any loop's right.
constexpr size_t kMostBytes = 16 * 1024;
// So few that a test with several connections has some with and some without.
constexpr size_t kLentBuffers = 2;
constexpr char kPoison = '\x5a';
constexpr size_t kDeliveriesPerLook = 8;
// How long the buffers of a closed stream are held.
constexpr uint64_t kTurnsToClose = 3;

// Calls `visit` with the pieces of the first `limit` bytes.
template <typename Visit>
void for_first(std::span<const iovec> buffers, size_t limit, Visit visit) {
  for (const iovec& buffer : buffers) {
    const size_t bytes = std::min(limit, buffer.iov_len);
    visit(std::span(static_cast<char*>(buffer.iov_base), bytes));
    limit -= bytes;
    if (limit == 0) return;
  }
}

size_t bytes_of(std::span<const iovec> buffers) {
  size_t bytes = 0;
  for (const iovec& buffer : buffers) bytes += buffer.iov_len;
  return bytes;
}

uint64_t digest(std::span<const iovec> buffers) {
  uint64_t hash = 14695981039346656037u;
  for_first(buffers, SIZE_MAX, [&](std::span<const char> piece) {
    hash = hash * 1099511628211u + std::hash<std::string_view>{}({piece.data(), piece.size()});
  });
  return hash;
}

// An operation: asked for, begun in the inner loop, done but not told yet.
enum class Step : uint8_t { kNone, kAsked, kStarted, kDone };

class LateLoop;

struct LateStream final : StreamHandler {
  explicit LateStream(LateLoop& late_loop) : loop(late_loop) {}
  void on_readable(Stream&, std::span<char>) noexcept override;
  void on_received(Stream&, int64_t result) noexcept override;
  void on_sent(Stream&, int64_t result) noexcept override;
  void on_gone(Stream&) noexcept override { is_gone = true; }
  void on_closed(Stream&) noexcept override;

  LateLoop& loop;
  Stream inner{this};
  Stream* outer = nullptr;

  struct Receive {
    Step step = Step::kNone;
    bool waits = false;  // it is a wait_readable()
    bool drops = false;  // ... a drop()
    uint64_t due = 0;
    int64_t result = 0;
    std::span<iovec> buffers{};
    size_t poisoned = 0;  // bytes of the buffers
    std::span<char> lent{};
    iovec segment{};  // into the staging buffer, or the lent one
  } receive;
  std::optional<int64_t> early_result;  // the end or an error, found by a wait_readable()
  std::vector<char> staged = std::vector<char>(kMostBytes);

  struct Send {
    Step step = Step::kNone;
    uint64_t due = 0;
    int64_t result = 0;
    std::span<iovec> buffers{};
    std::vector<iovec> segments;  // the same, as they were
    std::vector<iovec> in_work;   // the same, for the inner loop
    uint64_t digest = 0;
  } send;

  bool is_gone = false;
  Step closing = Step::kNone;
  uint64_t close_due = 0;
};

struct LateListener final : ListenerHandler {
  LateListener(LateLoop& late_loop, Listener& its_listener)
      : loop(late_loop), listener(its_listener), outer(its_listener.handler) {
    listener.handler = this;
  }
  ~LateListener() {
    listener.handler = outer;
    for (const auto& [due, socket] : accepted) ::close(socket.number);
  }
  bool on_accepted(Socket socket) noexcept override;
  void on_accept_failed(int error_number) noexcept override {
    outer->on_accept_failed(error_number);
  }

  LateLoop& loop;
  Listener& listener;
  ListenerHandler* outer;
  std::deque<std::pair<uint64_t, Socket>> accepted;  // with the turn in which they are told
};

class LateLoop final : public Loop, public WakeHandler {
 public:
  explicit LateLoop(WakeHandler& wake_handler) : wake_handler_(wake_handler) {
    for (std::vector<char>& buffer : lendable_) {
      buffer.resize(kMostBytes);
      free_lendable_.emplace_back(buffer);
    }
  }
  Status start() {
    auto loop = make_epoll_loop(*this);
    if (!loop.ok()) return loop.status();
    inner_ = std::move(*loop);
    return {};
  }

  const char* name() const noexcept override { return "late"; }
  Status add(Stream& stream, Socket socket) noexcept override;
  void close(Stream& stream, Closing how) noexcept override;
  Status add(Listener& listener) noexcept override;
  void remove(Listener& listener) noexcept override;
  Status add(Watch& watch) noexcept override { return inner_->add(watch); }
  void remove(Watch& watch) noexcept override { inner_->remove(watch); }
  void wait_readable(Stream& stream) noexcept override { ask_receive(stream, {}).waits = true; }
  void give_back(std::span<char> lent) noexcept override;
  void receive(Stream& stream, std::span<iovec> buffers) noexcept override;
  void drop(Stream& stream, std::span<iovec> buffers) noexcept override {
    ask_receive(stream, buffers).drops = true;
  }
  void cancel_receive(Stream& stream) noexcept override;
  void send(Stream& stream, std::span<iovec> buffers) noexcept override;
  uint64_t sent_so_far(Stream& stream) noexcept override;
  bool look_now(Stream& stream) noexcept override;
  bool had_unread(Stream& stream) noexcept override;
  size_t run_once(uint64_t deadline_ns) noexcept override;

  bool end_sending(Stream& stream) noexcept override { return inner_->end_sending(in(stream)); }
  void limit_unsent_time(Stream& stream, uint64_t ns) noexcept override {
    inner_->limit_unsent_time(in(stream), ns);
  }
  bool had_unsent(Stream& stream) noexcept override { return inner_->had_unsent(in(stream)); }
  std::optional<PeerCredentials> peer_credentials(Stream& stream) noexcept override {
    return inner_->peer_credentials(in(stream));
  }
  std::optional<sockaddr_storage> own_address(Stream& stream) noexcept override {
    return inner_->own_address(in(stream));
  }
  void wake() noexcept override { inner_->wake(); }
  uint64_t last_turn_ns() const noexcept override { return inner_->last_turn_ns(); }
  uint64_t wakeups() const noexcept override { return inner_->wakeups(); }

  // --- of the inner loop -------------------------------------------------------------------------
  size_t on_wake() noexcept override { return wake_handler_.on_wake(); }
  size_t on_turn_end() noexcept override;
  bool may_spin() noexcept override { return wake_handler_.may_spin(); }
  bool poll_memory() noexcept override { return wake_handler_.poll_memory(); }
  void before_sleep() noexcept override { wake_handler_.before_sleep(); }
  void after_sleep() noexcept override { wake_handler_.after_sleep(); }

  // --- of its streams ----------------------------------------------------------------------------
  void end_receive(LateStream& late, int64_t result) noexcept;
  void lend(LateStream& late) noexcept;
  // One to three turns from now.
  [[nodiscard]] uint64_t later() noexcept {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    return turn_ + 1 + (random_ >> 33) % 3;
  }
  [[nodiscard]] uint64_t turn() const noexcept { return turn_; }

 private:
  static LateStream& of(Stream& stream) noexcept { return *stream.state<LateStream*>(); }
  static Stream& in(Stream& stream) noexcept { return of(stream).inner; }
  LateStream::Receive& ask_receive(Stream& stream, std::span<iovec> buffers) noexcept;
  void start_receive(LateStream& late) noexcept;
  void start_send(LateStream& late) noexcept;
  [[nodiscard]] bool has_pending() const noexcept;
  size_t deliver(LateStream& late) noexcept;
  void deliver_receive(LateStream& late) noexcept;
  static void expect_untouched(const LateStream& late) noexcept;

  WakeHandler& wake_handler_;
  std::array<std::vector<char>, kLentBuffers> lendable_;
  std::vector<std::span<char>> free_lendable_;
  std::vector<std::unique_ptr<LateStream>> all_;
  std::vector<LateStream*> free_;
  std::vector<LateStream*> active_;
  std::vector<std::unique_ptr<LateListener>> listeners_;
  std::unique_ptr<Loop> inner_;
  uint64_t turn_ = 0;
  uint64_t random_ = 1;
};

void LateStream::on_readable(Stream&, std::span<char>) noexcept { loop.lend(*this); }
void LateStream::on_received(Stream&, int64_t result) noexcept { loop.end_receive(*this, result); }
void LateStream::on_sent(Stream&, int64_t result) noexcept {
  send.step = Step::kDone;
  send.due = loop.later();
  send.result = result;
}
void LateStream::on_closed(Stream&) noexcept {
  closing = Step::kDone;
  close_due = loop.turn() + kTurnsToClose;
}
bool LateListener::on_accepted(Socket socket) noexcept {
  accepted.emplace_back(loop.later(), socket);
  return true;
}

Status LateLoop::add(Stream& stream, Socket socket) noexcept {
  if (free_.empty()) {
    all_.push_back(std::make_unique<LateStream>(*this));
    free_.push_back(all_.back().get());
  }
  LateStream& late = *free_.back();
  LUMEN_RETURN_IF_ERROR(inner_->add(late.inner, socket));
  free_.pop_back();
  late.outer = &stream;
  stream.begin(&late);
  active_.push_back(&late);
  return {};
}

void LateLoop::close(Stream& stream, Closing how) noexcept {
  LateStream& late = of(stream);
  LUMEN_CHECK(late.closing == Step::kNone);
  late.closing = Step::kStarted;
  if (!late.receive.lent.empty()) give_back(std::exchange(late.receive.lent, {}));
  inner_->close(late.inner, how);
}

Status LateLoop::add(Listener& listener) noexcept {
  listeners_.push_back(std::make_unique<LateListener>(*this, listener));
  return inner_->add(listener);
}

void LateLoop::remove(Listener& listener) noexcept {
  inner_->remove(listener);
  std::erase_if(listeners_, [&](const auto& one) { return &one->listener == &listener; });
}

void LateLoop::give_back(std::span<char> lent) noexcept {
  for (std::vector<char>& buffer : lendable_) {
    if (buffer.data() != lent.data()) continue;
    std::fill(buffer.begin(), buffer.end(), kPoison);
    free_lendable_.emplace_back(buffer);
    return;
  }
  LUMEN_CHECK(false);  // not one of the loop's
}

LateStream::Receive& LateLoop::ask_receive(Stream& stream, std::span<iovec> buffers) noexcept {
  LateStream& late = of(stream);
  LUMEN_CHECK(late.receive.step == Step::kNone && late.closing == Step::kNone);
  late.receive = {.step = Step::kAsked, .due = later(), .buffers = buffers};
  if (const auto result = std::exchange(late.early_result, std::nullopt))
    end_receive(late, *result);
  return late.receive;
}

void LateLoop::receive(Stream& stream, std::span<iovec> buffers) noexcept {
  LateStream::Receive& receive = ask_receive(stream, buffers);
  receive.poisoned = std::min(kMostBytes, bytes_of(buffers));
  for_first(buffers, receive.poisoned,
            [](std::span<char> piece) { std::fill(piece.begin(), piece.end(), kPoison); });
}

void LateLoop::start_receive(LateStream& late) noexcept {
  LateStream::Receive& receive = late.receive;
  receive.step = Step::kStarted;
  if (receive.waits) return inner_->wait_readable(late.inner);
  receive.segment = {late.staged.data(), std::min(kMostBytes, bytes_of(receive.buffers))};
  if (receive.drops) return inner_->drop(late.inner, {&receive.segment, 1});
  inner_->receive(late.inner, {&receive.segment, 1});
}

void LateLoop::lend(LateStream& late) noexcept {
  if (free_lendable_.empty()) return end_receive(late, 0);
  late.receive.lent = free_lendable_.back();
  free_lendable_.pop_back();
  late.receive.segment = {late.receive.lent.data(), late.receive.lent.size()};
  inner_->receive(late.inner, {&late.receive.segment, 1});
}

void LateLoop::end_receive(LateStream& late, int64_t result) noexcept {
  late.receive.step = Step::kDone;
  late.receive.due = later();
  late.receive.result = result;
}

void LateLoop::cancel_receive(Stream& stream) noexcept {
  LateStream& late = of(stream);
  if (late.receive.step == Step::kStarted) inner_->cancel_receive(late.inner);
  if (late.receive.step == Step::kAsked) end_receive(late, -ECANCELED);
}

void LateLoop::send(Stream& stream, std::span<iovec> buffers) noexcept {
  LateStream::Send& send = of(stream).send;
  LUMEN_CHECK(send.step == Step::kNone && of(stream).closing == Step::kNone);
  send.step = Step::kAsked;
  send.due = later();
  send.buffers = buffers;
  send.segments.assign(buffers.begin(), buffers.end());
  send.digest = digest(send.segments);
}

void LateLoop::start_send(LateStream& late) noexcept {
  late.send.step = Step::kStarted;
  late.send.in_work = late.send.segments;
  inner_->send(late.inner, late.send.in_work);
}

uint64_t LateLoop::sent_so_far(Stream& stream) noexcept {
  return of(stream).send.step == Step::kAsked ? 0 : inner_->sent_so_far(in(stream));
}

bool LateLoop::look_now(Stream& stream) noexcept {
  LateStream& late = of(stream);
  if (late.send.step == Step::kAsked) start_send(late);
  if (late.receive.step == Step::kAsked) start_receive(late);
  return inner_->look_now(late.inner) || late.send.step == Step::kDone ||
         late.receive.step == Step::kDone;
}

bool LateLoop::had_unread(Stream& stream) noexcept {
  return of(stream).receive.step == Step::kDone || inner_->had_unread(in(stream));
}

bool LateLoop::has_pending() const noexcept {
  for (const LateStream* late : active_) {
    if (late->closing != Step::kNone) return true;
    for (const Step step : {late->receive.step, late->send.step}) {
      if (step == Step::kAsked || step == Step::kDone) return true;
    }
    if (late->is_gone && late->receive.step == Step::kNone && late->send.step == Step::kNone) {
      return true;
    }
  }
  return std::ranges::any_of(listeners_, [](const auto& one) { return !one->accepted.empty(); });
}

size_t LateLoop::run_once(uint64_t deadline_ns) noexcept {
  ++turn_;
  for (LateStream* late : active_) {
    if (late->closing != Step::kNone) continue;
    if (late->send.step == Step::kAsked && late->send.due <= turn_) start_send(*late);
    if (late->receive.step == Step::kAsked && late->receive.due <= turn_) start_receive(*late);
  }
  return inner_->run_once(has_pending() ? 0 : deadline_ns);
}

size_t LateLoop::on_turn_end() noexcept {
  size_t ran = 0;
  for (size_t i = 0; i < listeners_.size(); ++i) {
    LateListener& one = *listeners_[i];
    while (!one.accepted.empty() && one.accepted.front().first <= turn_) {
      const Socket socket = one.accepted.front().second;
      one.accepted.pop_front();
      if (!one.outer->on_accepted(socket)) ::close(socket.number);
      ++ran;
    }
  }
  const std::vector<LateStream*> active = active_;  // handlers add to it
  size_t until_look = kDeliveriesPerLook;
  for (LateStream* late : active) {
    ran += deliver(*late);
    if (--until_look > 0) continue;
    ran += wake_handler_.on_wake();
    until_look = kDeliveriesPerLook;
  }
  return ran + wake_handler_.on_turn_end();
}

size_t LateLoop::deliver(LateStream& late) noexcept {
  Stream& stream = *late.outer;
  if (late.closing == Step::kDone && late.close_due <= turn_) {
    expect_untouched(late);
    late.receive = {};
    late.send = {};
    late.early_result = std::nullopt;
    late.is_gone = false;
    late.closing = Step::kNone;
    std::erase(active_, &late);
    free_.push_back(&late);
    stream.handler->on_closed(stream);
    return 1;
  }
  if (late.closing != Step::kNone) return 0;
  size_t ran = 0;
  if (late.send.step == Step::kDone && late.send.due <= turn_) {
    LUMEN_CHECK(digest(late.send.segments) == late.send.digest);  // else it was sent as it is now
    late.send.step = Step::kNone;
    for (iovec& buffer : late.send.buffers) buffer = {};
    stream.handler->on_sent(stream, late.send.result);
    ++ran;
  }
  if (late.receive.step == Step::kDone && late.receive.due <= turn_ &&
      late.closing == Step::kNone) {
    deliver_receive(late);
    ++ran;
  }
  if (late.is_gone && late.receive.step == Step::kNone && late.send.step == Step::kNone &&
      late.closing == Step::kNone) {
    late.is_gone = false;
    stream.handler->on_gone(stream);
    ++ran;
  }
  return ran;
}

void LateLoop::deliver_receive(LateStream& late) noexcept {
  LateStream::Receive& receive = late.receive;
  Stream& stream = *late.outer;
  receive.step = Step::kNone;
  const std::span<char> lent = std::exchange(receive.lent, {});
  if (receive.waits && receive.result > 0) {
    stream.handler->on_readable(stream, lent.first(static_cast<size_t>(receive.result)));
    return;
  }
  if (!lent.empty()) give_back(lent);
  if (receive.waits && receive.result != -ECANCELED) {
    if (!lent.empty()) late.early_result = receive.result;
    stream.handler->on_readable(stream, {});
    return;
  }
  expect_untouched(late);
  if (!receive.drops && receive.result > 0) {
    const char* from = late.staged.data();
    for_first(receive.buffers, static_cast<size_t>(receive.result), [&](std::span<char> piece) {
      std::memcpy(piece.data(), from, piece.size());
      from += piece.size();
    });
  }
  stream.handler->on_received(stream, receive.result);
}

// Of the buffers that the kernel still holds.
void LateLoop::expect_untouched(const LateStream& late) noexcept {
  if (late.closing != Step::kNone && late.send.step != Step::kNone) {
    LUMEN_CHECK(digest(late.send.segments) == late.send.digest);
  }
  if (late.closing != Step::kNone && late.receive.step == Step::kNone) return;
  for_first(late.receive.buffers, late.receive.poisoned, [](std::span<const char> piece) {
    LUMEN_CHECK(std::ranges::all_of(piece, [](char byte) { return byte == kPoison; }));
  });
}

}  // namespace

Result<std::unique_ptr<Loop>> make_late_loop(WakeHandler& wake_handler) {
  auto loop = std::make_unique<LateLoop>(wake_handler);
  LUMEN_RETURN_IF_ERROR(loop->start());
  return std::unique_ptr<Loop>(std::move(loop));
}

}  // namespace lumen::net
