// Large bodies in every Loop: they arrive whole, a turn takes a bounded part of them, and small
// requests do not wait for them. See loop_suite.h.
#include "conformance/loop_suite.h"
#include "net/epoll_loop.h"

#include <algorithm>
#include <array>
#include <cerrno>

namespace lumen::net {
namespace {

constexpr size_t kBodyBytes = 600'000;

std::string some_body(uint32_t seed) {
  std::string body(kBodyBytes, '\0');
  for (char& byte : body) {
    seed = seed * 1664525u + 1013904223u;
    byte = static_cast<char>(seed >> 24);
  }
  return body;
}

// A client that sends a body, and the stream that takes it in.
struct Upload {
  RecordingStream ours;
  UniqueFd peer;
  std::string body;
  size_t sent = 0;  // of the body, by the client
  std::string got = std::string(kBodyBytes, '\0');
  size_t done = 0;
  size_t piece_bytes = kBodyBytes;  // that a receive asks for, in three segments
  std::array<iovec, 3> segments{};

  // As much as the socket holds.
  void write_more() {
    ssize_t bytes = 0;
    do {
      sent += static_cast<size_t>(std::max<ssize_t>(bytes, 0));
      bytes = ::send(peer.get(), body.data() + sent, body.size() - sent, MSG_NOSIGNAL);
    } while (bytes > 0);
  }
  std::span<iovec> next_segments() {
    const size_t bytes = std::min(piece_bytes, got.size() - done);
    const size_t first = std::min<size_t>(bytes, 1000);
    const size_t second = (bytes - first) / 2;
    segments = {iovec{got.data() + done, first}, iovec{got.data() + done + first, second},
                iovec{got.data() + done + first + second, bytes - first - second}};
    return std::span(segments).first(bytes <= first ? 1 : 3);
  }
  void receive() { ours.loop->receive(ours.stream, next_segments()); }
  // Asks for the rest again and again.
  void begin() {
    ours.on_received_hook = [this] {
      if (ours.received.back() <= 0) return;
      done += static_cast<size_t>(ours.received.back());
      if (done < got.size()) receive();
    };
    receive();
  }
  [[nodiscard]] bool is_whole() const { return done == got.size(); }
};

class LoopLarge : public LoopConformance {
 protected:
  void add_upload(Upload& one, uint32_t seed) {
    int fds[2];
    ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds));
    one.peer = UniqueFd(fds[1]);
    one.body = some_body(seed);
    add(one.ours, fds[0]);
    one.write_more();
  }
  // Bodies of which so much is there that all of them are postponed after one turn.
  void begin_uploads(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      uploads_.push_back(std::make_unique<Upload>());
      add_upload(*uploads_.back(), static_cast<uint32_t>(i + 1));
      uploads_.back()->begin();
    }
  }
  void write_more() {
    for (const auto& one : uploads_) one->write_more();
  }
  [[nodiscard]] size_t done() const {
    size_t bytes = 0;
    for (const auto& one : uploads_) bytes += one->done;
    return bytes;
  }
  void finish(Upload& one) {
    run_until([&] {
      one.write_more();
      return one.is_whole();
    });
    EXPECT_TRUE(one.got == one.body);
  }
  void TearDown() override {
    for (const auto& one : uploads_) {
      if (one->ours.closed == 0) close(one->ours);
    }
    LoopConformance::TearDown();
  }
  // Fails where the loop goes on turning with nothing to do.
  void expect_to_sleep() {
    loop_->run_once(0);
    const uint64_t deadline = now_ns() + 20'000'000;
    loop_->run_once(deadline);
    EXPECT_GE(now_ns(), deadline);
  }

  std::vector<std::unique_ptr<Upload>> uploads_;
};

TEST_P(LoopLarge, ManyBodiesAtOnceArriveAsTheyWereSent) {
  begin_uploads(12);
  for (size_t i = 0; i < uploads_.size(); ++i) uploads_[i]->piece_bytes = 1000 + 20'000 * i;
  for (const auto& one : uploads_) finish(*one);
  expect_to_sleep();
}

TEST_P(LoopLarge, BytesThatAreDroppedAndBytesThatAreKeptFollowEachOtherExactly) {
  for (const bool is_tcp : {false, true}) {
    if (is_tcp) use_tcp();
    const std::string body = some_body(7);
    std::string got(kBodyBytes, '\0');
    std::string unwanted(100'000, '\0');
    std::vector<iovec> segments;
    size_t sent = 0, done = 0;
    bool drops = false;
    uint32_t dropped = 0;
    const auto ask = [&] {
      drops = !drops;
      const size_t bytes = std::min<size_t>(drops ? 200'000 : 150'000, kBodyBytes - done);
      if (!drops) {
        segments = {{got.data() + done, bytes}};
        loop_->receive(ours_.stream, segments);
      } else {  // the same memory named twice
        segments = {{unwanted.data(), bytes / 2}, {unwanted.data(), bytes - bytes / 2}};
        loop_->drop(ours_.stream, segments);
      }
    };
    ours_.on_received_hook = [&] {
      ASSERT_GT(ours_.received.back(), 0);
      const auto bytes = static_cast<size_t>(ours_.received.back());
      if (drops) {
        std::copy_n(body.data() + done, bytes, got.data() + done);
        dropped += static_cast<uint32_t>(bytes);
      }
      done += bytes;
      if (done < kBodyBytes) ask();
    };
    ask();
    run_until([&] {
      const ssize_t bytes =
          ::send(peer_.get(), body.data() + sent, kBodyBytes - sent, MSG_DONTWAIT);
      sent += static_cast<size_t>(std::max<ssize_t>(bytes, 0));
      return done == kBodyBytes;
    });
    EXPECT_GT(dropped, 0u);
    EXPECT_TRUE(got == body);
  }
}

TEST_P(LoopLarge, SegmentsAreAfterwardsAsTheyWereHandedIn) {
  begin_uploads(1);
  Upload& one = *uploads_.front();
  const std::array<iovec, 3> before = one.segments;
  one.ours.on_received_hook = [] {};
  run_until([&] { return !one.ours.received.empty(); });
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i].iov_base, one.segments[i].iov_base);
    EXPECT_EQ(before[i].iov_len, one.segments[i].iov_len);
  }
}

TEST_P(LoopLarge, OneThatIsClosedTakesNoOtherWithIt) {
  for (const size_t closed : {0u, 2u, 4u}) {  // the first, one between, the last
    begin_uploads(5);
    loop_->run_once(0);
    Upload& gone = *uploads_[closed];
    const size_t results = gone.ours.received.size();
    close(gone.ours);
    EXPECT_EQ(gone.ours.received.size(), results);
    for (const auto& one : uploads_) {
      if (one.get() != &gone) finish(*one);
    }
    EXPECT_EQ(gone.ours.closed, 1);
    expect_to_sleep();
    for (const auto& one : uploads_) {
      if (one->ours.closed == 0) close(one->ours);
    }
    uploads_.clear();
  }
}

TEST_P(LoopLarge, OneThatIsClosedByTheHandlerOfAnotherIsToldOnce) {
  begin_uploads(6);
  Upload& first = *uploads_.front();
  Upload& last = *uploads_.back();
  const std::function<void()> go_on = first.ours.on_received_hook;
  bool has_closed = false;
  first.ours.on_received_hook = [&] {
    if (!has_closed && first.done > 100'000) {
      has_closed = true;
      loop_->close(last.ours.stream, Loop::Closing::kReset);
    }
    go_on();
  };
  for (size_t i = 0; i + 1 < uploads_.size(); ++i) finish(*uploads_[i]);
  EXPECT_EQ(last.ours.closed, 1);
  EXPECT_FALSE(last.is_whole());
}

TEST_P(LoopLarge, OneThatIsCancelledIsToldOnceAndGoesOnWithoutNewBytes) {
  begin_uploads(5);
  loop_->run_once(0);
  Upload& one = *uploads_[2];
  const std::function<void()> go_on = std::exchange(one.ours.on_received_hook, [] {});
  const size_t results = one.ours.received.size();
  loop_->cancel_receive(one.ours.stream);
  run_until([&] { return one.ours.received.size() > results; });
  // Bytes that the loop had before are told instead.
  const int64_t result = one.ours.received.back();
  if (result > 0) one.done += static_cast<size_t>(result);
  if (result <= 0) {
    EXPECT_EQ(result, -ECANCELED);
  }
  for (int turn = 0; turn < 5; ++turn) loop_->run_once(0);
  EXPECT_EQ(one.ours.received.size(), results + 1);
  one.ours.on_received_hook = go_on;
  one.receive();
  for (const auto& each : uploads_) finish(*each);
  expect_to_sleep();
}

TEST_P(LoopLarge, ALookAtOneTakesItsBytesOnce) {
  begin_uploads(6);
  loop_->run_once(0);
  for (int turn = 0; turn < 4; ++turn) {
    EXPECT_TRUE(loop_->look_now(uploads_[1]->ours.stream));
    EXPECT_TRUE(loop_->look_now(uploads_[1]->ours.stream)) << "its handler is still to run";
    EXPECT_TRUE(loop_->look_now(uploads_[5]->ours.stream));
    loop_->run_once(0);
    write_more();
  }
  for (const auto& one : uploads_) finish(*one);
  expect_to_sleep();
}

// Nothing arrives any more, so no event comes for bytes that the peer had sent.
TEST_P(LoopLarge, BytesThatAPeerHadSentBeforeItWentArriveAndThenTheEnd) {
  begin_uploads(5);
  for (const auto& one : uploads_) {
    const std::function<void()> go_on = one->ours.on_received_hook;
    one->ours.on_received_hook = [&one, go_on] {
      if (one->ours.received.back() <= 0) return;
      go_on();
    };
    one->body.resize(one->sent);
    one->peer.reset();
  }
  for (const auto& one : uploads_) {
    run_until([&] { return !one->ours.received.empty() && one->ours.received.back() <= 0; });
    EXPECT_EQ(one->ours.received.back(), 0);
    EXPECT_TRUE(one->got.substr(0, one->done) == one->body);
    run_until([&] { return one->ours.gone == 1; });
  }
  expect_to_sleep();
}

TEST_P(LoopLarge, AResetInTheMidstOfOneIsAnError) {
  use_tcp();
  const std::string body = some_body(3);
  std::string memory(kBodyBytes, '\0');
  iovec segment{memory.data(), memory.size()};
  ours_.on_received_hook = [&] {
    if (ours_.received.back() > 0) loop_->receive(ours_.stream, {&segment, 1});
  };
  loop_->receive(ours_.stream, {&segment, 1});
  (void)!::send(peer_.get(), body.data(), body.size(), MSG_DONTWAIT);
  loop_->run_once(0);
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(0, ::setsockopt(peer_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)));
  peer_.reset();
  run_until([&] { return !ours_.received.empty() && ours_.received.back() <= 0; });
  EXPECT_EQ(ours_.received.back(), -ECONNRESET);
  run_until([&] { return ours_.gone == 1; });
}

// --- turns ---------------------------------------------------------------------------------------

class PromptLarge : public LoopLarge {
 protected:
  void expect_delivered(const std::string& text) {
    ASSERT_EQ(ours_.received.size(), 1u) << "it waits for the bodies of others";
    EXPECT_EQ(text, buffer_.substr(0, text.size()));
    ours_.received.clear();
  }
};

TEST_P(PromptLarge, ATurnTakes64KiBOfOneStreamAtMost) {
  for (const size_t piece_bytes : {kBodyBytes, size_t{100'000}, size_t{40'000}, size_t{5'000}}) {
    Upload one;
    add_upload(one, 1);
    one.piece_bytes = piece_bytes;
    one.begin();
    size_t most = 0;
    for (int turn = 0; turn < 1000 && !one.is_whole(); ++turn) {
      const size_t before = one.done;
      loop_->run_once(now_ns() + 1'000'000'000u);
      most = std::max(most, one.done - before);
      one.write_more();
    }
    EXPECT_TRUE(one.got == one.body);
    EXPECT_LE(most, kMostReceivedAtOnce) << "in pieces of " << piece_bytes;
    if (piece_bytes > kMostReceivedAtOnce) {
      EXPECT_EQ(most, kMostReceivedAtOnce);
    }
    close(one.ours);
  }
}

TEST_P(PromptLarge, ATurnTakes256KiBOfAllBodiesThatAreUnderWay) {
  begin_uploads(20);
  loop_->run_once(0);  // the first 64 KiB of each
  for (int turn = 0; turn < 20; ++turn) {
    write_more();
    const size_t before = done();
    loop_->run_once(now_ns() + 1'000'000'000u);
    EXPECT_LE(done() - before, kMostPostponedBytesPerTurn);
    EXPECT_GT(done() - before, 0u);
  }
}

// No event comes for bytes that are in the socket already.
TEST_P(PromptLarge, ATurnDoesNotSleepWhileThereIsSomethingToTake) {
  begin_uploads(5);
  loop_->run_once(0);
  size_t there = 0;
  for (const auto& one : uploads_) there += one->sent;
  const uint64_t sleeps = loop_->wakeups();
  const uint64_t give_up_ns = now_ns() + 10'000'000'000u;
  while (done() < there && now_ns() < give_up_ns) loop_->run_once(give_up_ns);
  EXPECT_EQ(done(), there);
  EXPECT_EQ(loop_->wakeups(), sleeps);
}

TEST_P(PromptLarge, BodiesTakeTheirTurnsInOrder) {
  begin_uploads(20);
  loop_->run_once(0);
  for (int turn = 0; turn < 5; ++turn) loop_->run_once(0);
  size_t least = SIZE_MAX, most = 0;
  for (const auto& one : uploads_) {
    least = std::min(least, one->ours.received.size());
    most = std::max(most, one->ours.received.size());
  }
  EXPECT_EQ(least, 2u) << "the first at once, and one of the 20 in five turns";
  EXPECT_EQ(most, 2u);
}

TEST_P(PromptLarge, ASmallRequestIsDeliveredInTheTurnThatFindsIt) {
  ours_.on_readable_hook = [&] { loop_->receive(ours_.stream, {&segment_, 1}); };
  begin_uploads(20);
  loop_->run_once(0);
  for (int request = 0; request < 10; ++request) {
    loop_->wait_readable(ours_.stream);
    write_more();
    loop_->run_once(0);
    const std::string text = "small " + std::to_string(request);
    write_peer(text);
    const size_t before = done();
    loop_->run_once(0);
    expect_delivered(text);
    EXPECT_LE(done() - before, kMostPostponedBytesPerTurn);
  }
}

TEST_P(PromptLarge, TheNextRequestOfAConnectionThatHasSentABodyIsDeliveredInTheTurnThatFindsIt) {
  begin_uploads(20);
  loop_->run_once(0);
  Upload& one = *uploads_[7];
  while (!one.is_whole()) {
    write_more();
    loop_->run_once(0);
  }
  ours_.on_received_hook = one.ours.on_received_hook = [] {};
  one.ours.on_readable_hook = [&] { loop_->receive(one.ours.stream, {&segment_, 1}); };
  one.ours.received.clear();
  loop_->wait_readable(one.ours.stream);
  ASSERT_EQ(4, ::send(one.peer.get(), "next", 4, 0));
  loop_->run_once(0);
  EXPECT_EQ(one.ours.received, std::vector<int64_t>{4});
  EXPECT_EQ("next", buffer_.substr(0, 4));
}

TEST_P(PromptLarge, ABodyThatComesSlowlyIsTakenInTheTurnsThatFindItsPieces) {
  Upload one;
  one.peer = std::move(peer_);
  close(ours_);
  int fds[2];
  ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds));
  one.peer = UniqueFd(fds[1]);
  one.body = some_body(5);
  add(one.ours, fds[0]);
  one.begin();
  constexpr size_t kPiece = 30'000;
  for (size_t sent = 0; sent < kBodyBytes; sent += kPiece) {
    ASSERT_EQ(static_cast<ssize_t>(kPiece),
              ::send(one.peer.get(), one.body.data() + sent, kPiece, 0));
    loop_->run_once(now_ns() + 1'000'000'000u);
    if (one.done > kMostReceivedAtOnce) {
      EXPECT_EQ(one.done, sent + kPiece);
    }
  }
  run_until([&] { return one.is_whole(); });
  EXPECT_TRUE(one.got == one.body);
  close(one.ours);
}

INSTANTIATE_TEST_SUITE_P(Loops, LoopLarge, testing::ValuesIn(kLoops), name_of_case);
INSTANTIATE_TEST_SUITE_P(Loops, PromptLarge, testing::ValuesIn(kPromptLoops), name_of_case);

}  // namespace
}  // namespace lumen::net
