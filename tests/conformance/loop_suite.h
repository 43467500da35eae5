// The parts of the suite over every Loop. A loop that joins is one more line in kLoops.
// Threads: one, but where a test starts another. Memory: the heap. Errors: the expectation that did
// not hold.
#pragma once

#include <lumen/base/clock.h>
#include <lumen/net/loop.h>
#include <lumen/net/socket.h>

#include "support/late_loop.h"

#include <gtest/gtest.h>

#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace lumen::net {

using LoopFactory = Result<std::unique_ptr<Loop>> (*)(WakeHandler&);

struct LoopCase {
  const char* name;
  LoopFactory make;
  bool may_spin;  // before it sleeps
};

inline std::ostream& operator<<(std::ostream& out, const LoopCase& one) { return out << one.name; }

struct CountingWakeHandler final : WakeHandler {
  std::function<size_t()> look = [] { return size_t{0}; };
  std::function<size_t()> turn_end = [] { return size_t{0}; };
  bool spins = false;
  size_t on_wake() noexcept override { return look(); }
  size_t on_turn_end() noexcept override { return turn_end(); }
  bool may_spin() noexcept override { return spins; }
};

// Records the loop's calls.
struct RecordingStream final : StreamHandler {
  Stream stream{this};
  Loop* loop = nullptr;
  std::vector<int64_t> received;
  std::vector<int64_t> sent;
  int readable = 0;
  std::string lent;  // first bytes that came in a buffer of the loop's
  int gone = 0;
  int closed = 0;
  std::function<void()> on_received_hook = [] {};
  std::function<void()> on_readable_hook = [] {};

  void on_readable(Stream&, std::span<char> bytes) noexcept override {
    ++readable;
    lent.append(bytes.data(), bytes.size());
    if (!bytes.empty()) loop->give_back(bytes);
    on_readable_hook();
  }
  void on_received(Stream&, int64_t result) noexcept override {
    received.push_back(result);
    on_received_hook();
  }
  void on_sent(Stream&, int64_t result) noexcept override { sent.push_back(result); }
  void on_gone(Stream&) noexcept override { ++gone; }
  void on_closed(Stream&) noexcept override { ++closed; }
};

inline UniqueFd connect_to(const TcpAddress& address) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(address.port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof(where)) != 0) fd.reset();
  return fd;
}

class LoopConformance : public testing::TestWithParam<LoopCase> {
 protected:
  void SetUp() override {
    wake_.spins = GetParam().may_spin;
    auto loop = GetParam().make(wake_);
    if (!loop.ok() && loop.status().code() == Code::kUnsupported) {
      GTEST_SKIP() << loop.status().message();
    }
    ASSERT_TRUE(loop.ok()) << loop.status().message();
    loop_ = std::move(*loop);
    int fds[2];
    ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds));
    peer_ = UniqueFd(fds[1]);
    add(ours_, fds[0]);
  }
  void TearDown() override {
    if (loop_ == nullptr) return;                            // skipped
    wake_.look = wake_.turn_end = [] { return size_t{0}; };  // a test's name its locals
    ours_.on_received_hook = [] {};
    ours_.on_readable_hook = [] {};
    if (ours_.closed == 0) close(ours_);
  }

  void add(RecordingStream& stream, int fd) {
    stream.loop = loop_.get();
    stream.closed = 0;
    ASSERT_TRUE(loop_->add(stream.stream, Socket{fd}).ok());
  }
  void close(RecordingStream& stream) {
    loop_->close(stream.stream, Loop::Closing::kOrderly);
    run_until([&] { return stream.closed == 1; });
  }
  // `ours_` and `peer_` over TCP from now on.
  void use_tcp() {
    close(ours_);
    auto bound = listen_tcp({"127.0.0.1", 0}, false);
    ASSERT_TRUE(bound.ok()) << bound.status().message();
    peer_ = connect_to(bound->address);
    add(ours_, ::accept4(bound->fd.get(), nullptr, nullptr, SOCK_NONBLOCK));
  }

  // Turns until `done`; fails instead of hanging.
  void run_until(const std::function<bool()>& done) {
    const uint64_t give_up_ns = now_ns() + 10'000'000'000u;
    while (!done()) {
      ASSERT_LT(now_ns(), give_up_ns) << "the loop never got there";
      loop_->run_once(now_ns() + 100'000'000u);
    }
  }
  void write_peer(const std::string& text) {
    ASSERT_EQ(static_cast<ssize_t>(text.size()), ::write(peer_.get(), text.data(), text.size()));
  }
  std::string read_peer(size_t bytes) {
    std::string text(bytes, '\0');
    size_t have = 0;
    while (have < bytes) {
      const ssize_t got = ::read(peer_.get(), text.data() + have, bytes - have);
      if (got > 0) have += static_cast<size_t>(got);
      if (got <= 0) loop_->run_once(0);
    }
    return text;
  }

  CountingWakeHandler wake_;
  std::unique_ptr<Loop> loop_;
  RecordingStream ours_;
  UniqueFd peer_;
  std::string buffer_ = std::string(64, '\0');
  iovec segment_{buffer_.data(), buffer_.size()};
};

struct RecordingListener final : ListenerHandler {
  std::vector<UniqueFd> accepted;
  std::vector<int> errors;
  bool refuses = false;
  bool on_accepted(Socket socket) noexcept override {
    if (refuses) return false;
    accepted.emplace_back(socket.number);
    return true;
  }
  void on_accept_failed(int error_number) noexcept override { errors.push_back(error_number); }
};

inline const LoopCase kLoops[] = {{"epoll", &make_epoll_loop, false},
                                  {"epoll_spinning", &make_epoll_loop, true},
                                  {"late", &make_late_loop, false},
                                  {"io_uring", &make_uring_loop, false},
                                  {"io_uring_spinning", &make_uring_loop, true}};
// Those that deliver the bytes that are there in the turn that finds them.
inline const LoopCase kPromptLoops[] = {kLoops[0], kLoops[1]};
inline std::string name_of_case(const testing::TestParamInfo<LoopCase>& one) {
  return one.param.name;
}

}  // namespace lumen::net
