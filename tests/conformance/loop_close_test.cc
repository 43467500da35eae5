// How streams end in every Loop, and a loop's knowledge of a connection beside its bytes. See
// loop_suite.h.
#include "conformance/loop_suite.h"

#include <unistd.h>

#include <cerrno>

namespace lumen::net {
namespace {

class LoopClose : public LoopConformance {};

TEST_P(LoopClose, IsToldOnceAndByATurn) {
  loop_->close(ours_.stream, Loop::Closing::kOrderly);
  EXPECT_EQ(ours_.closed, 0) << "a handler ran inside close()";
  run_until([&] { return ours_.closed > 0; });
  for (int turn = 0; turn < 5; ++turn) loop_->run_once(0);
  EXPECT_EQ(ours_.closed, 1);
  char byte = 0;
  EXPECT_EQ(0, ::read(peer_.get(), &byte, 1));
}

TEST_P(LoopClose, NothingElseIsDeliveredAfterIt) {
  write_peer("x");
  std::string text = "y";
  iovec out{text.data(), text.size()};
  loop_->receive(ours_.stream, {&segment_, 1});
  loop_->send(ours_.stream, {&out, 1});
  peer_.reset();
  close(ours_);
  for (int turn = 0; turn < 5; ++turn) loop_->run_once(0);
  EXPECT_TRUE(ours_.received.empty());
  EXPECT_TRUE(ours_.sent.empty());
  EXPECT_EQ(ours_.gone, 0);
}

TEST_P(LoopClose, MayComeFromAHandler) {
  write_peer("x");
  ours_.on_received_hook = [&] { loop_->close(ours_.stream, Loop::Closing::kOrderly); };
  loop_->receive(ours_.stream, {&segment_, 1});
  run_until([&] { return ours_.closed == 1; });
  EXPECT_EQ(ours_.received.size(), 1u);
}

// Until on_closed() the kernel may write to its buffers; a loop that holds on to a buffer checks
// that.
TEST_P(LoopClose, FreesTheBuffersAndTheStreamWhenItIsTold) {
  struct Once final : StreamHandler {
    Stream stream{this};
    std::string buffer = std::string(32, '\0');
    iovec segment{buffer.data(), buffer.size()};
    std::unique_ptr<Once>* self = nullptr;
    void on_readable(Stream&, std::span<char>) noexcept override {}
    void on_received(Stream&, int64_t) noexcept override {}
    void on_sent(Stream&, int64_t) noexcept override {}
    void on_closed(Stream&) noexcept override { self->reset(); }
  };
  auto once = std::make_unique<Once>();
  once->self = &once;
  int fds[2];
  ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds));
  const UniqueFd peer(fds[1]);
  ASSERT_TRUE(loop_->add(once->stream, Socket{fds[0]}).ok());
  loop_->receive(once->stream, {&once->segment, 1});
  loop_->run_once(0);
  ASSERT_EQ(1, ::write(peer.get(), "x", 1));
  loop_->close(once->stream, Loop::Closing::kOrderly);
  run_until([&] { return once == nullptr; });
  loop_->run_once(0);
}

TEST_P(LoopClose, AStreamMayBeAddedAgain) {
  write_peer("of the first");
  loop_->receive(ours_.stream, {&segment_, 1});
  close(ours_);
  int fds[2];
  ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds));
  peer_ = UniqueFd(fds[1]);
  add(ours_, fds[0]);
  write_peer("next");
  loop_->receive(ours_.stream, {&segment_, 1});
  run_until([&] { return !ours_.received.empty(); });
  EXPECT_EQ("next", buffer_.substr(0, 4));
}

TEST_P(LoopClose, LentBytesMayBeGivenBackLater) {
  std::vector<std::span<char>> lent;
  struct Keeps final : StreamHandler {
    Stream stream{this};
    std::vector<std::span<char>>* lent = nullptr;
    int readable = 0, closed = 0;
    void on_readable(Stream&, std::span<char> bytes) noexcept override {
      ++readable;
      if (!bytes.empty()) lent->push_back(bytes);
    }
    void on_received(Stream&, int64_t) noexcept override {}
    void on_sent(Stream&, int64_t) noexcept override {}
    void on_closed(Stream&) noexcept override { ++closed; }
  };
  constexpr size_t kStreams = 5;
  std::vector<Keeps> streams(kStreams);
  std::vector<UniqueFd> peers;
  for (Keeps& one : streams) {
    one.lent = &lent;
    int fds[2];
    ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds));
    peers.emplace_back(fds[1]);
    ASSERT_TRUE(loop_->add(one.stream, Socket{fds[0]}).ok());
    loop_->wait_readable(one.stream);
    ASSERT_EQ(5, ::write(fds[1], "first", 5));
    run_until([&] { return one.readable == 1; });
  }
  for (Keeps& one : streams) {
    loop_->close(one.stream, Loop::Closing::kOrderly);
    run_until([&] { return one.closed == 1; });
  }
  for (const std::span<char> bytes : lent) {
    EXPECT_EQ("first", std::string(bytes.data(), bytes.size()));
    loop_->give_back(bytes);
  }
}

TEST_P(LoopClose, ByResetDropsUnsentBytes) {
  use_tcp();
  EXPECT_FALSE(loop_->had_unsent(ours_.stream));
  std::string big(16 * 1024 * 1024, 'x');
  iovec segment{big.data(), big.size()};
  loop_->send(ours_.stream, {&segment, 1});
  run_until([&] { return loop_->had_unsent(ours_.stream); });
  loop_->close(ours_.stream, Loop::Closing::kReset);
  run_until([&] { return ours_.closed == 1; });
  std::vector<char> bytes(1 << 20);
  ssize_t got = 0;
  while ((got = ::recv(peer_.get(), bytes.data(), bytes.size(), 0)) > 0) {
  }
  EXPECT_EQ(-1, got);
  EXPECT_EQ(ECONNRESET, errno);
}

TEST_P(LoopClose, EndsItsSendingAndStillReceives) {
  std::string text = "last words";
  iovec out{text.data(), text.size()};
  loop_->send(ours_.stream, {&out, 1});
  run_until([&] { return !ours_.sent.empty(); });
  ASSERT_TRUE(loop_->end_sending(ours_.stream));
  EXPECT_EQ(text, read_peer(text.size()));
  char byte = 0;
  EXPECT_EQ(0, ::read(peer_.get(), &byte, 1));
  write_peer("still there");
  loop_->receive(ours_.stream, {&segment_, 1});
  run_until([&] { return !ours_.received.empty(); });
  EXPECT_EQ(11, ours_.received.at(0));
}

TEST_P(LoopClose, KnowsWhetherSomethingWaitsToBeReceived) {
  EXPECT_FALSE(loop_->had_unread(ours_.stream));
  loop_->wait_readable(ours_.stream);
  EXPECT_FALSE(loop_->had_unread(ours_.stream));
  write_peer("x");
  EXPECT_TRUE(loop_->had_unread(ours_.stream)) << "before its event too";
  run_until([&] { return ours_.readable == 1; });
}

TEST_P(LoopClose, KnowsBothEndsOfAConnection) {
  const auto peer = loop_->peer_credentials(ours_.stream);
  ASSERT_TRUE(peer.has_value());
  EXPECT_EQ(peer->uid, ::getuid());
  use_tcp();
  EXPECT_FALSE(loop_->peer_credentials(ours_.stream).has_value());
  const auto own = loop_->own_address(ours_.stream);
  ASSERT_TRUE(own.has_value());
  EXPECT_EQ(own->ss_family, AF_INET);
  EXPECT_EQ(reinterpret_cast<const sockaddr_in&>(*own).sin_addr.s_addr, htonl(INADDR_LOOPBACK));
}

// The kernel keeps unsent bytes for as long as the client answers its probes; unit_net looks at the
// time itself.
TEST_P(LoopClose, AConnectionWhoseUnsentTimeIsLimitedServesOn) {
  use_tcp();
  loop_->limit_unsent_time(ours_.stream, 1'000'000'000);
  write_peer("x");
  loop_->receive(ours_.stream, {&segment_, 1});
  run_until([&] { return !ours_.received.empty(); });
}

// --- the late loop
// ---------------------------------------------------------------------------------

class LateLoopDeathTest : public LoopConformance {};

TEST_P(LateLoopDeathTest, SeesAReceiveBufferThatIsUsedAfterTheCloseBeforeItIsTold) {
  loop_->receive(ours_.stream, {&segment_, 1});
  loop_->run_once(0);
  loop_->close(ours_.stream, Loop::Closing::kOrderly);
  EXPECT_DEATH(
      {
        buffer_[0] = 'x';
        run_until([&] { return ours_.closed == 1; });
      },
      "CHECK");
  run_until([&] { return ours_.closed == 1; });
}

TEST_P(LateLoopDeathTest, SeesASendBufferThatIsUsedBeforeItIsSent) {
  std::string text = "reply";
  iovec out{text.data(), text.size()};
  loop_->send(ours_.stream, {&out, 1});
  EXPECT_DEATH(
      {
        text[0] = 'x';
        run_until([&] { return !ours_.sent.empty(); });
      },
      "CHECK");
  run_until([&] { return !ours_.sent.empty(); });
}

INSTANTIATE_TEST_SUITE_P(Loops, LoopClose, testing::ValuesIn(kLoops), name_of_case);
INSTANTIATE_TEST_SUITE_P(Loops, LateLoopDeathTest, testing::Values(kLoops[2]), name_of_case);

}  // namespace
}  // namespace lumen::net
