// The fate of bytes that a peer does not take, and the limit of descriptors. One thread.
#include <lumen/net/descriptor_limit.h>
#include <lumen/net/socket.h>

#include "net/connected_socket.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace lumen::net {
namespace {

constexpr size_t kBytes = 256 * 1024;

// A connection over loopback whose client has little room and does not read, and whose server has
// handed kBytes to the kernel.
struct Stalled {
  Stalled() {
    auto bound = listen_tcp({"127.0.0.1", 0}, false);
    port = bound->address.port;
    client = UniqueFd(::socket(AF_INET, SOCK_STREAM, 0));
    const int little = 4096;
    const int much = 1 << 20;
    ::setsockopt(client.get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof(little));
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(port);
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(0, ::connect(client.get(), reinterpret_cast<sockaddr*>(&where), sizeof(where)));
    server = UniqueFd(::accept4(bound->fd.get(), nullptr, nullptr, SOCK_NONBLOCK));
    ::setsockopt(server.get(), SOL_SOCKET, SO_SNDBUF, &much, sizeof(much));
    const std::vector<char> bytes(kBytes);
    EXPECT_EQ(static_cast<ssize_t>(kBytes), ::send(server.get(), bytes.data(), kBytes, 0));
  }
  // How many sockets of the server's port the kernel still sends for after their close.
  [[nodiscard]] int closing() const {
    constexpr unsigned kFinWait1 = 4;
    std::ifstream file("/proc/net/tcp");
    int found = 0;
    for (std::string line; std::getline(file, line);) {
      unsigned local = 0;
      unsigned state = 0;
      if (std::sscanf(line.c_str(), " %*d: %*8x:%x %*8x:%*x %x", &local, &state) != 2) continue;
      found += local == port && state == kFinWait1 ? 1 : 0;
    }
    return found;
  }

  uint16_t port = 0;
  UniqueFd client;
  UniqueFd server;
};

TEST(Unsent, IsSeenUntilThePeerHasTakenIt) {
  Stalled stalled;
  EXPECT_TRUE(had_unsent(stalled.server.get()));
  std::vector<char> bytes(kBytes);
  EXPECT_EQ(static_cast<ssize_t>(kBytes),
            ::recv(stalled.client.get(), bytes.data(), kBytes, MSG_WAITALL));
  while (had_unsent(stalled.server.get())) std::this_thread::yield();
}

TEST(Unsent, GoesWithAResetAndStaysInTheKernelWithoutOne) {
  Stalled usual;
  usual.server.reset();
  EXPECT_EQ(1, usual.closing()) << "else the next line shows nothing";
  Stalled reset;
  reset_on_close(reset.server.get());
  reset.server.reset();
  EXPECT_EQ(0, reset.closing());
  std::vector<char> bytes(kBytes);
  ssize_t got = 0;
  while ((got = ::recv(reset.client.get(), bytes.data(), kBytes, 0)) > 0) {
  }
  EXPECT_EQ(-1, got);
  EXPECT_EQ(ECONNRESET, errno);
}

// The kernel keeps it for as long as the client answers its probes, so a hang is this test's
// failure.
TEST(Unsent, IsGivenUpAfterTheTimeThatIsSet) {
  Stalled stalled;
  limit_unsent_time(stalled.server.get(), 100'000'000);
  stalled.server.reset();
  while (stalled.closing() > 0) std::this_thread::yield();
}

class DescriptorLimit : public testing::Test {
 protected:
  void SetUp() override { ::getrlimit(RLIMIT_NOFILE, &before_); }
  void TearDown() override { ::setrlimit(RLIMIT_NOFILE, &before_); }
  static rlim_t now() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
  }
  rlimit before_{};
};

TEST_F(DescriptorLimit, IsRaisedToTheWantedNumberAndNeverLowered) {
  const rlimit low{.rlim_cur = 64, .rlim_max = before_.rlim_max};
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &low));
  EXPECT_EQ(100u, raise_descriptor_limit(100));
  EXPECT_EQ(100u, now());
  EXPECT_EQ(100u, raise_descriptor_limit(70));
  EXPECT_EQ(100u, now());
}

TEST_F(DescriptorLimit, EndsAtTheHardLimitAndSaysSo) {
  const rlimit low{.rlim_cur = 64, .rlim_max = before_.rlim_max};
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &low));
  EXPECT_EQ(before_.rlim_max, raise_descriptor_limit(before_.rlim_max + uint64_t{1}));
  EXPECT_EQ(before_.rlim_max, now());
}

TEST(OpenDescriptors, AreCounted) {
  const uint64_t before = open_descriptors();
  const UniqueFd one(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(before + 1, open_descriptors());
}

}  // namespace
}  // namespace lumen::net
