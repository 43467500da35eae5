// One suite over every Loop, but for those that are out of descriptors: loop_descriptors_test.cc.
// One thread but where a test starts another. Fails with the expectation that did not hold.
#include "conformance/loop_suite.h"

#include <fcntl.h>
#include <netinet/in.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

namespace lumen::net {
namespace {

TEST_P(LoopConformance, DeliversBytesThatWereThereBeforeTheReceive) {
  write_peer("hello");
  loop_->receive(ours_.stream, {&segment_, 1});
  run_until([&] { return !ours_.received.empty(); });
  EXPECT_EQ(5, ours_.received.at(0));
  EXPECT_EQ("hello", buffer_.substr(0, 5));
}

TEST_P(LoopConformance, DeliversBytesThatComeAfterTheReceive) {
  loop_->receive(ours_.stream, {&segment_, 1});
  loop_->run_once(0);
  EXPECT_TRUE(ours_.received.empty());
  write_peer("late");
  run_until([&] { return !ours_.received.empty(); });
  EXPECT_EQ(4, ours_.received.at(0));
}

TEST_P(LoopConformance, AFullBufferIsFollowedByTheRestWithoutNewBytesArriving) {
  write_peer(std::string(100, 'x'));
  size_t total = 0;
  ours_.on_received_hook = [&] {
    total += static_cast<size_t>(ours_.received.back());
    if (total < 100) loop_->receive(ours_.stream, {&segment_, 1});
  };
  loop_->receive(ours_.stream, {&segment_, 1});
  run_until([&] { return total == 100; });
}

TEST_P(LoopConformance, FillsSeveralBuffersInOrder) {
  std::string first(3, '\0'), second(8, '\0');
  iovec segments[] = {{first.data(), first.size()}, {second.data(), second.size()}};
  write_peer("abcdef");
  loop_->receive(ours_.stream, segments);
  run_until([&] { return !ours_.received.empty(); });
  EXPECT_EQ(6, ours_.received.at(0));
  EXPECT_EQ("abc", first);
  EXPECT_EQ("def", second.substr(0, 3));
}

TEST_P(LoopConformance, DropsTheGivenNumberAndNotAByteMore) {
  write_peer(std::string(150, 'x') + "kept");
  // The same memory named twice, and a piece of it once more: 150 bytes.
  std::vector<iovec> segments{segment_, segment_, {buffer_.data(), 22}};
  loop_->drop(ours_.stream, segments);
  run_until([&] { return !ours_.received.empty(); });
  EXPECT_EQ(150, ours_.received.at(0));
  loop_->receive(ours_.stream, {&segment_, 1});
  run_until([&] { return ours_.received.size() == 2; });
  EXPECT_EQ(4, ours_.received.at(1));
  EXPECT_EQ("kept", buffer_.substr(0, 4));
}

// A receive() after a drop() keeps its bytes again, over TCP too, where drop() does not copy them.
TEST_P(LoopConformance, DropsFromATcpSocketWithoutHarmToLaterBytes) {
  use_tcp();
  for (int round = 0; round < 3; ++round) {
    ours_.received.clear();
    write_peer(std::string(64, 'x') + "kept");
    loop_->drop(ours_.stream, {&segment_, 1});
    run_until([&] { return !ours_.received.empty(); });
    ASSERT_EQ(64, ours_.received.at(0));
    loop_->receive(ours_.stream, {&segment_, 1});
    run_until([&] { return ours_.received.size() == 2; });
    EXPECT_EQ(4, ours_.received.at(1));
    EXPECT_EQ("kept", buffer_.substr(0, 4));
  }
}

TEST_P(LoopConformance, SaysReadableWithoutTakingBytes) {
  loop_->wait_readable(ours_.stream);
  loop_->run_once(0);
  EXPECT_EQ(0, ours_.readable);
  write_peer("abc");
  run_until([&] { return ours_.readable == 1; });
  if (!ours_.lent.empty()) {
    EXPECT_EQ("abc", ours_.lent);
    return;
  }
  loop_->receive(ours_.stream, {&segment_, 1});
  run_until([&] { return !ours_.received.empty(); });
  EXPECT_EQ(3, ours_.received.at(0));
}

// A loop that lends may have looked for bytes already, and found the end.
TEST_P(LoopConformance, TheEndIsReadableAndThenAResultOfZero) {
  loop_->wait_readable(ours_.stream);
  ASSERT_EQ(::shutdown(peer_.get(), SHUT_WR), 0);
  run_until([&] { return ours_.readable == 1; });
  EXPECT_EQ("", ours_.lent);
  loop_->receive(ours_.stream, {&segment_, 1});
  run_until([&] { return !ours_.received.empty(); });
  EXPECT_EQ(std::vector<int64_t>{0}, ours_.received);
}

TEST_P(LoopConformance, TheEndOfThePeerIsAResultOfZeroAfterItsLastBytes) {
  write_peer("end");
  peer_.reset();
  std::vector<int64_t> seen;
  ours_.on_received_hook = [&] {
    if (ours_.received.back() > 0) loop_->receive(ours_.stream, {&segment_, 1});
  };
  loop_->receive(ours_.stream, {&segment_, 1});
  run_until([&] { return ours_.received.size() == 2; });
  EXPECT_EQ((std::vector<int64_t>{3, 0}), ours_.received);
}

TEST_P(LoopConformance, SendsMoreThanTheSocketHoldsAndCompletesOnce) {
  std::string big(4 * 1024 * 1024, '\0');
  std::iota(big.begin(), big.end(), '\0');
  iovec segments[] = {{big.data(), 1000}, {big.data() + 1000, big.size() - 1000}};
  loop_->send(ours_.stream, segments);
  EXPECT_TRUE(ours_.sent.empty()) << "a handler ran inside send()";
  const std::string got = read_peer(big.size());
  run_until([&] { return !ours_.sent.empty(); });
  EXPECT_EQ(std::vector<int64_t>{static_cast<int64_t>(big.size())}, ours_.sent);
  EXPECT_TRUE(got == big);
}

TEST_P(LoopConformance, SendingToAClosedPeerIsAnErrorNotASignal) {
  peer_.reset();
  std::string text = "x";
  iovec segment{text.data(), text.size()};
  loop_->send(ours_.stream, {&segment, 1});
  run_until([&] { return !ours_.sent.empty(); });
  EXPECT_EQ(-EPIPE, ours_.sent.at(0));
}

TEST_P(LoopConformance, ACancelledReceiveCompletesOnceWithECanceled) {
  loop_->receive(ours_.stream, {&segment_, 1});
  loop_->run_once(0);
  loop_->cancel_receive(ours_.stream);
  run_until([&] { return !ours_.received.empty(); });
  write_peer("after");
  loop_->run_once(0);
  EXPECT_EQ(std::vector<int64_t>{-ECANCELED}, ours_.received);
}

TEST_P(LoopConformance, WakesFromAnotherThread) {
  std::atomic<bool> posted{false};
  size_t seen = 0;
  wake_.look = [&] {
    const bool found = posted.exchange(false);
    seen += found ? 1 : 0;
    return size_t{found};
  };
  std::thread other([&] {
    posted.store(true);
    loop_->wake();
  });
  run_until([&] { return seen == 1; });
  other.join();
}

TEST_P(LoopConformance, LosesNoWakeUpOfManyUnderLoad) {
  constexpr int kPosts = 20'000;
  std::atomic<int> posted{0};
  int seen = 0;
  wake_.look = [&] {
    const int now = posted.load();
    const int found = now - seen;
    seen = now;
    return static_cast<size_t>(found);
  };
  std::thread other([&] {
    for (int i = 0; i < kPosts; ++i) {
      posted.fetch_add(1);
      loop_->wake();
    }
  });
  const uint64_t give_up_ns = now_ns() + 20'000'000'000u;
  // Waits without a deadline: a lost wake-up would hang here, and the clock is no help to it.
  while (seen < kPosts && now_ns() < give_up_ns) loop_->run_once(UINT64_MAX);
  other.join();
  EXPECT_EQ(kPosts, seen);
}

// Was: wake() did nothing while the loop was awake, so an event after its last look slept with it.
TEST_P(LoopConformance, AWakeUpAfterTheEndOfATurnKeepsTheNextFromSleeping) {
  loop_->run_once(0);
  int looks = 0;
  int ends = 0;
  wake_.look = [&] {
    ++looks;
    return size_t{0};
  };
  wake_.turn_end = [&] {
    if (++ends == 1) loop_->wake();
    return size_t{0};
  };
  loop_->run_once(0);
  looks = 0;
  const uint64_t deadline = now_ns() + 10'000'000'000u;
  loop_->run_once(deadline);
  EXPECT_LT(now_ns(), deadline) << "it slept";
  EXPECT_EQ(ends, 2) << "what the wake-up was for may be done at the end of a turn only";
  EXPECT_GE(looks, 1);
}

TEST_P(LoopConformance, AWakeUpThatWasServedCostsNoTurn) {
  loop_->run_once(0);
  loop_->wake();
  loop_->run_once(UINT64_MAX);
  const uint64_t deadline = now_ns() + 20'000'000;
  loop_->run_once(deadline);
  EXPECT_GE(now_ns(), deadline) << "one wake-up ended two waits";
}

TEST_P(LoopConformance, AWakeUpByTheEndOfATurnItselfCostsNoTurn) {
  int work = 0;
  wake_.turn_end = [&] {
    if (work == 0) return size_t{0};
    --work;
    loop_->wake();  // as a model that ran on this thread tells its own loop
    return size_t{1};
  };
  loop_->run_once(0);
  work = 1;
  loop_->run_once(0);
  const uint64_t deadline = now_ns() + 20'000'000;
  loop_->run_once(deadline);
  EXPECT_GE(now_ns(), deadline);
}

TEST_P(LoopConformance, LooksAtASocketWhenToldToBeforeItsEventComes) {
  loop_->receive(ours_.stream, {&segment_, 1});
  loop_->run_once(0);
  EXPECT_FALSE(loop_->look_now(ours_.stream)) << "nothing is there";
  write_peer("late");
  EXPECT_TRUE(loop_->look_now(ours_.stream));
  EXPECT_TRUE(ours_.received.empty()) << "a handler ran inside look_now()";
  run_until([&] { return !ours_.received.empty(); });
  EXPECT_EQ(std::vector<int64_t>{4}, ours_.received);
  loop_->wait_readable(ours_.stream);
  EXPECT_FALSE(loop_->look_now(ours_.stream));
  write_peer("x");
  EXPECT_TRUE(loop_->look_now(ours_.stream));
  run_until([&] { return ours_.readable == 1; });
}

TEST_P(LoopConformance, SaysHowMuchOfASendTheKernelHas) {
  std::string big(4 * 1024 * 1024, 'x');
  iovec segment{big.data(), big.size()};
  loop_->send(ours_.stream, {&segment, 1});
  run_until([&] { return loop_->sent_so_far(ours_.stream) > 0; });
  const uint64_t before = loop_->sent_so_far(ours_.stream);
  EXPECT_FALSE(loop_->look_now(ours_.stream)) << "the socket is full";
  EXPECT_EQ(loop_->sent_so_far(ours_.stream), before);
  (void)read_peer(1024 * 1024);
  run_until([&] { return loop_->sent_so_far(ours_.stream) > before; });
  EXPECT_TRUE(ours_.sent.empty());
  close(ours_);  // the loop has `big` until then
}

TEST_P(LoopConformance, SleepsUntilTheDeadlineAndNotShorter) {
  loop_->run_once(0);  // the events of adding the stream (it is writable)
  const uint64_t deadline = now_ns() + 20'000'000;
  loop_->run_once(deadline);
  EXPECT_GE(now_ns(), deadline);
}

class PromptLoops : public LoopConformance {};

TEST_P(PromptLoops, WorkOfTheEndOfATurnIsDeliveredInThatTurn) {
  loop_->receive(ours_.stream, {&segment_, 1});
  std::string reply = "done";
  iovec out{reply.data(), reply.size()};
  wake_.turn_end = [&] {
    if (ours_.received.empty() || out.iov_len == 0) return size_t{0};
    loop_->send(ours_.stream, {&out, 1});
    return size_t{1};
  };
  write_peer("work");
  loop_->run_once(now_ns() + 1'000'000'000u);
  EXPECT_EQ(1u, ours_.sent.size());
  EXPECT_EQ("done", read_peer(4));
}

// Was: with hundreds of bodies to take in, a reply that was ready waited for the end of the pass,
// 20 ms.
TEST_P(LoopConformance, LooksForWorkOfOtherThreadsWhileItServesManyStreams) {
  constexpr size_t kStreams = 64;
  std::vector<std::unique_ptr<RecordingStream>> streams;
  std::vector<UniqueFd> peers;
  std::string bytes(kStreams, '\0');
  std::vector<iovec> segments(kStreams);
  size_t served = 0;
  for (size_t i = 0; i < kStreams; ++i) {
    int fds[2];
    ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds));
    streams.push_back(std::make_unique<RecordingStream>());
    streams.back()->on_received_hook = [&] { ++served; };
    peers.emplace_back(fds[1]);
    add(*streams.back(), fds[0]);
    segments[i] = {&bytes[i], 1};
    loop_->receive(streams.back()->stream, {&segments[i], 1});
    ASSERT_EQ(1, ::write(fds[1], "x", 1));
  }
  std::vector<size_t> served_at_look;
  wake_.look = [&] {
    served_at_look.push_back(served);
    return size_t{0};
  };
  run_until([&] { return served == kStreams; });
  size_t longest = 0;
  for (size_t i = 1; i < served_at_look.size(); ++i) {
    longest = std::max(longest, served_at_look[i] - served_at_look[i - 1]);
  }
  EXPECT_LE(longest, 8u);
  for (const auto& one : streams) close(*one);
}

TEST_P(LoopConformance, TellsHowLongItWasAwayFromItsSockets) {
  EXPECT_EQ(loop_->last_turn_ns(), 0u);
  loop_->run_once(0);
  const uint64_t before = now_ns();
  while (now_ns() - before < 2'000'000) {
  }
  loop_->run_once(0);
  EXPECT_GE(loop_->last_turn_ns(), 2'000'000u);
}

TEST_P(LoopConformance, AcceptsConnections) {
  auto tcp = listen_tcp({"127.0.0.1", 0}, false);
  ASSERT_TRUE(tcp.ok()) << tcp.status().message();
  RecordingListener handler;
  Listener listener{std::move(tcp->fd), &handler};
  ASSERT_TRUE(loop_->add(listener).ok());
  const UniqueFd first = connect_to(tcp->address);
  const UniqueFd second = connect_to(tcp->address);
  run_until([&] { return handler.accepted.size() == 2; });
  handler.refuses = true;
  const UniqueFd third = connect_to(tcp->address);
  char byte = 0;
  ssize_t got = -1;
  run_until([&] {
    got = ::recv(third.get(), &byte, 1, MSG_DONTWAIT);
    return got >= 0;
  });
  EXPECT_EQ(0, got) << "what nobody takes is closed";
  loop_->remove(listener);
}

// --- a peer that goes away -----------------------------------------------------------------------

TEST_P(LoopConformance, TellsOfAHangUpWhereNothingIsInFlight) {
  peer_.reset();
  run_until([&] { return ours_.gone == 1; });
  EXPECT_TRUE(ours_.received.empty());
  EXPECT_EQ(ours_.readable, 0);
}

TEST_P(LoopConformance, AHalfCloseIsNoHangUp) {
  ASSERT_EQ(::shutdown(peer_.get(), SHUT_WR), 0);
  for (int turn = 0; turn < 3; ++turn) loop_->run_once(now_ns() + 5'000'000);
  EXPECT_EQ(ours_.gone, 0);
  std::string text = "a reply that is still owed";
  iovec reply{text.data(), text.size()};
  loop_->send(ours_.stream, {&reply, 1});
  run_until([&] { return ours_.sent.size() == 1; });
  EXPECT_EQ(read_peer(text.size()), text);
}

// Its last bytes and its end may come in one event: first the bytes, then the end.
TEST_P(LoopConformance, DeliversTheLastBytesOfAPeerThatHasHungUp) {
  loop_->receive(ours_.stream, {&segment_, 1});
  write_peer("last");
  peer_.reset();
  run_until([&] { return ours_.gone == 1; });
  EXPECT_EQ(ours_.received, std::vector<int64_t>{4});
}

// An operation in flight ends instead, and says it as ever.
TEST_P(LoopConformance, AHangUpEndsAReceiveInFlight) {
  loop_->receive(ours_.stream, {&segment_, 1});
  loop_->run_once(now_ns() + 1'000'000);
  peer_.reset();
  run_until([&] { return !ours_.received.empty(); });
  EXPECT_EQ(ours_.received, std::vector<int64_t>{0});
}

// Of loops that share a listener a connection is to wake one, so epoll is told (EPOLLEXCLUSIVE).
// Which of them sleep when it comes can't be arranged; the kernel's settings can be read.
// io_uring's accept does so by itself, and nothing shows it.
class EpollLoops : public LoopConformance {};

TEST_P(EpollLoops, ASharedListenerIsWaitedForExclusively) {
  constexpr unsigned kExclusive = 1u << 28;
  auto tcp = listen_tcp({"127.0.0.1", 0}, false);
  ASSERT_TRUE(tcp.ok()) << tcp.status().message();
  RecordingListener handler;
  Listener listener{.fd = std::move(tcp->fd), .handler = &handler, .is_shared = true};
  ASSERT_TRUE(loop_->add(listener).ok());
  bool found = false;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      int number = -1;
      unsigned events = 0;
      if (std::sscanf(line.c_str(), "tfd: %d events: %x", &number, &events) != 2) continue;
      if (number != listener.fd.get()) continue;
      found = true;
      EXPECT_NE(events & kExclusive, 0u) << line;
    }
  }
  EXPECT_TRUE(found);
  const UniqueFd client = connect_to(tcp->address);
  run_until([&] { return handler.accepted.size() == 1; });
  loop_->remove(listener);
}

INSTANTIATE_TEST_SUITE_P(Loops, PromptLoops, testing::ValuesIn(kPromptLoops), name_of_case);
INSTANTIATE_TEST_SUITE_P(Loops, EpollLoops, testing::Values(kLoops[0], kLoops[1], kLoops[2]),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Loops, LoopConformance, testing::ValuesIn(kLoops), name_of_case);

}  // namespace
}  // namespace lumen::net
