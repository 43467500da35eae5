// Echoes over loopback TCP: clients and loop on one thread, of which only the loop's turns are
// timed. See the header.
#include "net/loop_trial.h"

#include <lumen/base/clock.h>
#include <lumen/base/unique_fd.h>
#include <lumen/net/loop.h>
#include <lumen/net/socket.h>

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace lumen::net {
namespace {

constexpr size_t kConnections = 16;
constexpr size_t kMessageBytes = 512;
constexpr size_t kExchanges = 8;  // of each connection in a round
constexpr size_t kRounds = 5;
// A wake-up takes some 20 us; on a machine that is so busy that it takes this, epoll will do.
constexpr uint64_t kWakeTimeoutNs = 200'000'000;
constexpr uint64_t kGiveUpNs = 1'000'000'000;  // a trial that hangs is a failed one

// Sends back what comes, message by message.
class Echo final : public StreamHandler {
 public:
  Stream stream{this};
  Loop* loop = nullptr;
  bool is_closed = false;

  void on_readable(Stream&, std::span<char> lent) noexcept override {
    if (lent.empty()) {
      receive();
      return;
    }
    std::ranges::copy(lent, buffer_.begin());
    const size_t bytes = lent.size();
    loop->give_back(lent);
    took(bytes);
  }
  void on_received(Stream&, int64_t result) noexcept override {
    if (result > 0) took(static_cast<size_t>(result));
  }
  void on_sent(Stream&, int64_t) noexcept override {
    have_ = 0;
    loop->wait_readable(stream);
  }
  void on_closed(Stream&) noexcept override { is_closed = true; }

 private:
  void receive() noexcept {
    segment_ = {buffer_.data() + have_, kMessageBytes - have_};
    loop->receive(stream, {&segment_, 1});
  }
  void took(size_t bytes) noexcept {
    have_ += bytes;
    if (have_ < kMessageBytes) return receive();
    segment_ = {buffer_.data(), kMessageBytes};
    loop->send(stream, {&segment_, 1});
  }

  std::array<char, 4096> buffer_{};  // as large as any lent one
  size_t have_ = 0;
  iovec segment_{};
};

// Tells another thread that the loop is about to sleep.
struct SleepingHandler final : WakeHandler {
  std::atomic<bool> sleeps{false};
  size_t on_wake() noexcept override { return 0; }
  void before_sleep() noexcept override {
    // sync[loop_trial.sleeps]: release; pairs with the thread of try_wake()
    sleeps.store(true, std::memory_order_release);
  }
};

class Side {
 public:
  Status start(Result<std::unique_ptr<Loop>> (*make)(WakeHandler&)) {
    auto loop = make(handler_);
    if (!loop.ok()) return loop.status();
    loop_ = std::move(*loop);
    for (size_t i = 0; i < kConnections; ++i) LUMEN_RETURN_IF_ERROR(connect());
    return {};
  }
  // Whether a wake-up by another thread ends the loop's wait. Under valgrind (3.19) it does not: a
  // thread that waits in an io_uring keeps all others from running, and a server would hang.
  Status try_wake() {
    while (loop_->run_once(0) > 0) {
    }
    // relaxed: no other thread is there yet
    handler_.sleeps.store(false, std::memory_order_relaxed);
    std::thread other([this] {
      // sync[loop_trial.sleeps]: acquire; pairs with before_sleep()
      while (!handler_.sleeps.load(std::memory_order_acquire)) std::this_thread::yield();
      loop_->wake();
    });
    const uint64_t give_up_ns = now_ns() + kWakeTimeoutNs;
    loop_->run_once(give_up_ns);
    const bool has_hung = now_ns() >= give_up_ns;
    other.join();
    return has_hung ? Status::error(Code::kInternal, "a wake-up by another thread ends no wait")
                    : Status();
  }
  // The time of the loop's turns for a request.
  Result<double> round() {
    uint64_t spent_ns = 0;
    for (size_t i = 0; i < kExchanges; ++i) {
      std::array<char, kMessageBytes> message{};
      for (const UniqueFd& client : clients_) {
        if (::send(client.get(), message.data(), message.size(), MSG_NOSIGNAL) < 0) {
          return Status::from_errno(errno, "sending to a loop");
        }
      }
      const uint64_t give_up_ns = now_ns() + kGiveUpNs;
      for (size_t client = 0, have = 0; client < clients_.size();) {
        const ssize_t got =
            ::recv(clients_[client].get(), message.data(), message.size() - have, MSG_DONTWAIT);
        if (got > 0) have += static_cast<size_t>(got);
        if (have == message.size()) {
          ++client;
          have = 0;
          continue;
        }
        const uint64_t before = now_ns();
        if (before >= give_up_ns) return Status::error(Code::kInternal, "no reply in a second");
        loop_->run_once(before + 1'000'000);
        spent_ns += now_ns() - before;
      }
    }
    return static_cast<double>(spent_ns) / (kExchanges * kConnections);
  }
  ~Side() {
    if (loop_ == nullptr) return;
    for (const auto& echo : echoes_) loop_->close(echo->stream, Loop::Closing::kOrderly);
    const uint64_t give_up_ns = now_ns() + kGiveUpNs;
    while (!std::ranges::all_of(echoes_, [](const auto& echo) { return echo->is_closed; }) &&
           now_ns() < give_up_ns) {
      loop_->run_once(now_ns() + 1'000'000);
    }
  }

 private:
  Status connect() {
    auto bound = listen_tcp({"127.0.0.1", 0}, false);
    if (!bound.ok()) return bound.status();
    UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(bound->address.port);
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (!client.valid() ||
        ::connect(client.get(), reinterpret_cast<sockaddr*>(&where), sizeof(where)) != 0) {
      return Status::from_errno(errno, "connecting to %s", bound->address.text().c_str());
    }
    UniqueFd ours(::accept4(bound->fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!ours.valid()) return Status::from_errno(errno, "accepting a connection");
    auto echo = std::make_unique<Echo>();
    echo->loop = loop_.get();
    LUMEN_RETURN_IF_ERROR(loop_->add(echo->stream, Socket{ours.release()}));
    loop_->wait_readable(echo->stream);
    echoes_.push_back(std::move(echo));
    clients_.push_back(std::move(client));
    return {};
  }

  SleepingHandler handler_;
  std::unique_ptr<Loop> loop_;
  std::vector<std::unique_ptr<Echo>> echoes_;
  std::vector<UniqueFd> clients_;
};

Result<LoopTrial> try_loops_here() {
  Side epoll;
  Side io_uring;
  LUMEN_RETURN_IF_ERROR(epoll.start(make_epoll_loop));
  LUMEN_RETURN_IF_ERROR(io_uring.start(make_uring_loop));
  LUMEN_RETURN_IF_ERROR(io_uring.try_wake());
  std::array<double, kRounds> epoll_ns{};
  std::array<double, kRounds> io_uring_ns{};
  for (size_t round = 0; round < kRounds; ++round) {
    const auto of_epoll = epoll.round();
    if (!of_epoll.ok()) return of_epoll.status();
    const auto of_io_uring = io_uring.round();
    if (!of_io_uring.ok()) return of_io_uring.status();
    epoll_ns[round] = *of_epoll;
    io_uring_ns[round] = *of_io_uring;
  }
  std::ranges::sort(epoll_ns);
  std::ranges::sort(io_uring_ns);
  return LoopTrial{epoll_ns[kRounds / 2], io_uring_ns[kRounds / 2]};
}

}  // namespace

// By a thread of its own: see set_up() in uring.cc.
Result<LoopTrial> try_loops() {
  Result<LoopTrial> result = LoopTrial{};
  std::thread([&result] { result = try_loops_here(); }).join();
  return result;
}

}  // namespace lumen::net
