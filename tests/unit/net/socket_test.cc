// Addresses as users write them. One thread.
#include <lumen/net/socket.h>

#include <gtest/gtest.h>

#include <string>

namespace lumen::net {
namespace {

TEST(TcpAddress, ReadsHostAndPort) {
  const auto address = parse_tcp_address("127.0.0.1:8000");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ("127.0.0.1", address->host);
  EXPECT_EQ(8000, address->port);
}

TEST(TcpAddress, WithoutAHostMeansLoopback) {
  const auto address = parse_tcp_address(":80");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ("127.0.0.1:80", address->text());
}

TEST(TcpAddress, WritesIpv6InBrackets) {
  const auto address = parse_tcp_address("[::1]:8000");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ("::1", address->host);
  EXPECT_EQ("[::1]:8000", address->text());
}

TEST(TcpAddress, RefusesTextThatIsNoAddressAndNamesIt) {
  for (const char* text : {"", "8000", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "::1:80",
                           "127.0.0.1:80x", "example.org:80", "127.0.0.1:-1"}) {
    const auto address = parse_tcp_address(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(Code::kInvalidArgument, address.status().code());
    EXPECT_NE(std::string_view::npos, address.status().message().find("address '"));
  }
}

TEST(ListenTcp, PicksAFreePortAndSaysWhich) {
  const auto listener = listen_tcp({"127.0.0.1", 0}, false);
  ASSERT_TRUE(listener.ok());
  EXPECT_NE(0, listener->address.port);
}

TEST(ListenTcp, SaysWhoseAddressIsTaken) {
  const auto first = listen_tcp({"127.0.0.1", 0}, false);
  ASSERT_TRUE(first.ok());
  const auto second = listen_tcp(first->address, false);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(std::string_view::npos, second.status().message().find(first->address.text()));
}

TEST(IsLoopback, IsTrueForAddressesThatOnlyThisMachineReaches) {
  for (const char* text :
       {"127.0.0.1:1", "127.255.0.9:1", ":1", "localhost:1", "[::1]:1", "[::ffff:127.0.0.1]:1"}) {
    EXPECT_TRUE(is_loopback(*parse_tcp_address(text))) << text;
  }
  for (const char* text : {"0.0.0.0:1", "192.0.2.1:1", "128.0.0.1:1", "[::]:1", "[2001:db8::1]:1",
                           "[::ffff:10.0.0.1]:1"}) {
    EXPECT_FALSE(is_loopback(*parse_tcp_address(text))) << text;
  }
}

}  // namespace
}  // namespace lumen::net
