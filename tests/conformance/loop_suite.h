// What the suite over every Loop is made of. A loop that joins is one more line in kLoops.
// Threads: one, but where a test starts another. Memory: the heap. Errors: the expectation that did not hold.
#pragma once

#include <lumen/base/clock.h>
#include <lumen/net/loop.h>
#include <lumen/net/socket.h>

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

// Records what the loop delivers.
struct RecordingStream final : StreamHandler {
  Stream stream{this};
  std::vector<int64_t> received;
  std::vector<int64_t> sent;
  int readable = 0;
  int progress = 0;
  int gone = 0;
  std::function<void()> on_received_hook = [] {};

  void on_readable(Stream&) noexcept override { ++readable; }
  void on_received(Stream&, int64_t result) noexcept override {
    received.push_back(result);
    on_received_hook();
  }
  void on_sent(Stream&, int64_t result) noexcept override { sent.push_back(result); }
  void on_send_progress(Stream&) noexcept override { ++progress; }
  void on_gone(Stream&) noexcept override { ++gone; }
};

class LoopConformance : public testing::TestWithParam<LoopCase> {
 protected:
  void SetUp() override {
    wake_.spins = GetParam().may_spin;
    auto loop = GetParam().make(wake_);
    ASSERT_TRUE(loop.ok()) << loop.status().message();
    loop_ = std::move(*loop);
    int fds[2];
    ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds));
    ours_.stream.fd = UniqueFd(fds[0]);
    peer_ = UniqueFd(fds[1]);
    ASSERT_TRUE(loop_->add(ours_.stream).ok());
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
  void on_accepted(UniqueFd fd) noexcept override { accepted.push_back(std::move(fd)); }
  void on_accept_failed(int error_number) noexcept override { errors.push_back(error_number); }
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

inline const LoopCase kLoops[] = {{"epoll", &make_epoll_loop, false},
                                  {"epoll_spinning", &make_epoll_loop, true}};
inline std::string name_of_case(const testing::TestParamInfo<LoopCase>& one) {
  return one.param.name;
}

}  // namespace lumen::net
