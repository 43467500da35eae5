// Cancelled receives, bytes that come at any moment and lent buffers that run out, in every Loop.
// See loop_suite.h. Prints the seed of a random history that fails.
#include "conformance/loop_suite.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

namespace lumen::net {
namespace {

class LoopChaos : public LoopConformance {};

// Ours does not block, as an accepted connection; the peer's does.
struct Pair {
  Pair() {
    EXPECT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
    EXPECT_EQ(0, ::fcntl(fds[0], F_SETFL, O_RDWR | O_NONBLOCK));
  }
  int fds[2] = {-1, -1};
};

// Receives the bytes 0, 1, 2, ... of a peer by all ways that there are, in any order, and cancels
// some.
class RandomReader final : public StreamHandler {
 public:
  RandomReader(Loop& loop, uint32_t seed) : loop_(loop), random_(seed) {}
  Stream stream{this};
  size_t received = 0;
  size_t wrong = 0;
  size_t cancelled = 0;
  bool has_ended = false;
  bool is_closed = false;

  void ask() {
    is_asked_ = true;
    switch (random_() % 4) {
      case 0: loop_.wait_readable(stream); return;
      case 1:
        drops_ = true;
        segments_[0] = {memory_.data(), 1 + random_() % 300};
        loop_.drop(stream, {segments_.data(), 1});
        return;
      default: receive(); return;
    }
  }
  void receive() {
    drops_ = false;
    segments_[0] = {memory_.data(), 1 + random_() % 700};
    segments_[1] = {memory_.data() + segments_[0].iov_len, 1 + random_() % 1000};
    loop_.receive(stream, std::span(segments_).first(1 + random_() % 2));
  }
  void cancel_sometimes() {
    if (is_asked_ && random_() % 3 == 0) loop_.cancel_receive(stream);
  }

  void on_readable(Stream&, std::span<char> lent) noexcept override {
    if (lent.empty()) return receive();
    check(lent.data(), lent.size());
    loop_.give_back(lent);
    ask();
  }
  void on_received(Stream&, int64_t result) noexcept override {
    is_asked_ = false;
    if (result == -ECANCELED) ++cancelled;
    if (result == 0) has_ended = true;
    if (result > 0 && drops_) received += static_cast<size_t>(result);
    if (result > 0 && !drops_) check(memory_.data(), static_cast<size_t>(result));
    if (!has_ended) ask();
  }
  void on_sent(Stream&, int64_t) noexcept override {}
  void on_closed(Stream&) noexcept override { is_closed = true; }

 private:
  void check(const char* bytes, size_t count) {
    for (size_t i = 0; i < count; ++i) wrong += bytes[i] != static_cast<char>(received + i);
    received += count;
  }

  Loop& loop_;
  std::minstd_rand random_;
  std::array<char, 2000> memory_{};
  std::array<iovec, 2> segments_{};
  bool drops_ = false;
  bool is_asked_ = false;
};

TEST_P(LoopChaos, EveryByteComesOnceAndInOrderWhateverIsCancelled) {
  constexpr size_t kBytes = 300'000;
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    const Pair pair;
    RandomReader reader(*loop_, seed);
    ASSERT_TRUE(loop_->add(reader.stream, Socket{pair.fds[0]}).ok());
    std::thread peer([fd = pair.fds[1], seed] {
      std::minstd_rand random(seed + 100);
      std::string bytes(kBytes, '\0');
      for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>(i);
      for (size_t sent = 0; sent < kBytes;) {
        const size_t piece = std::min<size_t>(1 + random() % 3000, kBytes - sent);
        const ssize_t done = ::send(fd, bytes.data() + sent, piece, MSG_NOSIGNAL);
        if (done <= 0) break;
        sent += static_cast<size_t>(done);
        if (random() % 4 == 0) std::this_thread::yield();
      }
      ::close(fd);
    });
    reader.ask();
    run_until([&] {
      reader.cancel_sometimes();
      return reader.has_ended;
    });
    EXPECT_EQ(reader.received, kBytes);
    EXPECT_EQ(reader.wrong, 0u);
    EXPECT_GT(reader.cancelled, 0u);
    loop_->close(reader.stream, Loop::Closing::kOrderly);
    run_until([&] { return reader.is_closed; });
    peer.join();
  }
}

// A loop over io_uring that has no buffer left gets ENOBUFS from the kernel.
TEST_P(LoopChaos, StreamsAreServedWhileTheHandlersOfOthersKeepAllLentBuffers) {
  constexpr size_t kStreams = 600;
  struct Keeper final : StreamHandler {
    Stream stream{this};
    Loop* loop = nullptr;
    std::span<char> lent;
    std::string bytes = std::string(8, '\0');
    iovec segment{bytes.data(), bytes.size()};
    bool is_served = false;
    bool is_closed = false;
    void on_readable(Stream&, std::span<char> first) noexcept override {
      lent = first;
      is_served = !first.empty();
      if (first.empty()) loop->receive(stream, {&segment, 1});
    }
    void on_received(Stream&, int64_t result) noexcept override { is_served = result == 5; }
    void on_sent(Stream&, int64_t) noexcept override {}
    void on_closed(Stream&) noexcept override { is_closed = true; }
  };
  std::vector<Keeper> keepers(kStreams);
  std::vector<UniqueFd> peers;
  for (Keeper& one : keepers) {
    one.loop = loop_.get();
    const Pair pair;
    peers.emplace_back(pair.fds[1]);
    ASSERT_TRUE(loop_->add(one.stream, Socket{pair.fds[0]}).ok());
    loop_->wait_readable(one.stream);
  }
  for (const UniqueFd& peer : peers) ASSERT_EQ(5, ::write(peer.get(), "bytes", 5));
  run_until([&] { return std::ranges::all_of(keepers, &Keeper::is_served); });
  for (Keeper& one : keepers) {
    const std::string_view got = one.lent.empty() ? std::string_view(one.bytes).substr(0, 5)
                                                  : std::string_view(one.lent.data(), 5);
    EXPECT_EQ(got, "bytes");
    if (!one.lent.empty()) loop_->give_back(one.lent);
    loop_->close(one.stream, Loop::Closing::kOrderly);
  }
  run_until([&] { return std::ranges::all_of(keepers, &Keeper::is_closed); });
}

// Streams come and go in the same descriptors while their operations are under way.
TEST_P(LoopChaos, HundredsOfStreamsThatAreClosedInTheMidstOfTheirOperationsAreEachToldOnce) {
  std::minstd_rand random(7);
  for (int round = 0; round < 300; ++round) {
    RecordingStream one;
    const Pair pair;
    UniqueFd peer(pair.fds[1]);
    add(one, pair.fds[0]);
    std::string out(1 + random() % 400'000, 'x');  // more than the socket holds, at times
    iovec out_segment{out.data(), out.size()};
    std::string in(64, '\0');
    iovec in_segment{in.data(), in.size()};
    if (random() % 2 == 0) loop_->send(one.stream, {&out_segment, 1});
    if (random() % 3 != 0) loop_->receive(one.stream, {&in_segment, 1});
    for (auto turns = random() % 3; turns > 0; --turns) loop_->run_once(0);
    if (random() % 2 == 0) (void)!::write(peer.get(), "bytes", 5);
    if (random() % 3 == 0) peer.reset();
    if (random() % 2 == 0) loop_->run_once(0);
    loop_->close(one.stream, random() % 2 == 0 ? Loop::Closing::kReset : Loop::Closing::kOrderly);
    run_until([&] { return one.closed == 1; });
    const size_t results = one.received.size() + one.sent.size();
    loop_->run_once(0);
    EXPECT_EQ(one.received.size() + one.sent.size(), results);
    EXPECT_EQ(one.closed, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Loops, LoopChaos, testing::ValuesIn(kLoops), name_of_case);

}  // namespace
}  // namespace lumen::net
