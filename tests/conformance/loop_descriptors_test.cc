// Loops that are out of descriptors: they refuse, sleep, and serve again. See loop_suite.h.
#include "conformance/loop_suite.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <optional>
#include <utility>
#include <vector>

namespace lumen::net {
namespace {

// The highest number that a new descriptor of this process may have is `last`.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(int last) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(last) + 1;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// All numbers are taken, and none above `last` may be had even if one is given up. An accept that
// is in the kernel, as io_uring's, goes by the limit that there was when it was asked for.
class DescriptorsUpTo {
 public:
  explicit DescriptorsUpTo(int last) {
    for (UniqueFd fd(::dup(2)); fd.valid(); fd = UniqueFd(::dup(2)))
      taken_.push_back(std::move(fd));
    limit_.emplace(last);
  }

 private:
  std::vector<UniqueFd> taken_;
  std::optional<DescriptorLimit> limit_;
};

// Above those that are open when a test begins: few to take.
constexpr int kSpareDescriptors = 32;

// The lowest number that is free, which the next descriptor gets.
int next_descriptor() { return UniqueFd(::open("/dev/null", O_RDONLY)).get(); }

class DescriptorsRunOut : public LoopConformance {
 protected:
  void SetUp() override {
    LoopConformance::SetUp();
    if (loop_ == nullptr) return;  // skipped
    limit_.emplace(next_descriptor() + kSpareDescriptors);
    auto tcp = listen_tcp({"127.0.0.1", 0}, false);
    ASSERT_TRUE(tcp.ok()) << tcp.status().message();
    address_ = tcp->address;
    listener_.fd = std::move(tcp->fd);
    listener_.handler = &handler_;
    ASSERT_TRUE(loop_->add(listener_).ok());
    // One while there are descriptors: the first time that it sees a type UBSan needs one itself.
    const UniqueFd client = connect_to(address_);
    run_until([&] { return handler_.accepted.size() == 1; });
    handler_.accepted.clear();
  }
  // Until the loop sleeps with a connection pending; fails where it never does.
  void expect_sleep() {
    const uint64_t turns_before = loop_->wakeups();
    const uint64_t began_ns = now_ns();
    while (now_ns() - began_ns < 100'000'000) loop_->run_once(now_ns() + 100'000'000);
    EXPECT_LE(loop_->wakeups() - turns_before, 12u) << "it spins";
  }

  std::optional<DescriptorLimit> limit_;
  TcpAddress address_;
  RecordingListener handler_;
  Listener listener_;
};

TEST_P(DescriptorsRunOut, AConnectionIsRefusedAndTheReserveIsBack) {
  for (size_t round = 1; round <= 3; ++round) {
    const UniqueFd client = connect_to(address_);
    {
      const DescriptorsUpTo none(next_descriptor() - 1);  // the reserve's number lies below
      run_until([&] { return handler_.errors.size() == round; });
    }
    EXPECT_EQ(EMFILE, handler_.errors.back());
    char byte = 0;
    EXPECT_EQ(0, ::recv(client.get(), &byte, 1, 0)) << "it was not closed";
  }
  EXPECT_TRUE(handler_.accepted.empty());
  loop_->remove(listener_);
}

// Was: where the reserve could not be opened again (another thread was quicker), it was gone for
// good, and the loop spun on the listener.
TEST_P(DescriptorsRunOut, WithoutTheReserveTheLoopSleepsAndServesOnceOneIsFree) {
  const UniqueFd client = connect_to(address_);
  {
    const DescriptorsUpTo none(2);  // every number above is taken or forbidden, the reserve's too
    expect_sleep();
  }
  run_until([&] { return handler_.accepted.size() == 1; });
  const UniqueFd other = connect_to(address_);
  const DescriptorsUpTo none(next_descriptor() - 1);
  const size_t errors = handler_.errors.size();
  run_until([&] { return handler_.errors.size() == errors + 1; });
  char byte = 0;
  EXPECT_EQ(0, ::recv(other.get(), &byte, 1, 0)) << "the reserve is not back";
  loop_->remove(listener_);
}

TEST_P(DescriptorsRunOut, AListenerMayGoWhileItWaitsForADescriptor) {
  const UniqueFd client = connect_to(address_);
  {
    const DescriptorsUpTo none(2);
    loop_->run_once(now_ns() + 1'000'000'000u);
  }
  loop_->remove(listener_);
  expect_sleep();
  EXPECT_TRUE(handler_.accepted.empty());
}

INSTANTIATE_TEST_SUITE_P(Loops, DescriptorsRunOut, testing::ValuesIn(kLoops), name_of_case);

}  // namespace
}  // namespace lumen::net
