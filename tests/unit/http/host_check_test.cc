// Whose name a Host is. One thread; no socket.
#include <lumen/transports/http/host_check.h>

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>

namespace lumen::http {
namespace {

TEST(HostCheck, KnowsTheLoopbackByAddressAndName) {
  const HostCheck machine = HostCheck::create("");
  for (const std::string_view host :
       {"localhost", "LOCALHOST:8000", "localhost.", "a.b.localhost:1", "127.0.0.1",
        "127.0.0.1:8000", "127.1.2.3", "[::1]", "[::1]:8000", "0.0.0.0:8000", "[::]:80",
        "[::ffff:127.0.0.1]:8000"}) {
    EXPECT_TRUE(machine.allows(host, nullptr)) << host;
  }
}

TEST(HostCheck, KnowsTheNamesOfThisMachine) {
  const HostCheck machine = HostCheck::create("");
  char name[256] = {};
  ASSERT_EQ(0, ::gethostname(name, sizeof(name) - 1));
  EXPECT_TRUE(machine.allows(name, nullptr)) << name;
  EXPECT_TRUE(machine.allows(std::string(name) + ".local:8000", nullptr)) << name;
}

TEST(HostCheck, RefusesEveryOtherNameAndAddress) {
  const HostCheck machine = HostCheck::create("");
  for (const std::string_view host : {"attacker.example",
                                      "attacker.example:8000",
                                      "localhost.attacker.example",
                                      "127.0.0.1.attacker.example",
                                      "notlocalhost",
                                      "localhost-",
                                      ".localhost",
                                      "",
                                      ".",
                                      ":8000",
                                      "[",
                                      "[]",
                                      "[::1",
                                      "[attacker.example]",
                                      "198.51.100.7",
                                      "198.51.100.7:8000",
                                      "[2001:db8::7]:8000",
                                      "127.0.0.1:1:2",
                                      "*",
                                      "2130706433",
                                      "0x7f.1",
                                      "127.1"}) {
    EXPECT_FALSE(machine.allows(host, nullptr)) << host;
  }
  EXPECT_FALSE(machine.allows(std::string(5000, 'a'), nullptr));
}

TEST(HostCheck, AllowsTheHostsThatItsUserNames) {
  const HostCheck machine = HostCheck::create("Models.Example,198.51.100.7,2001:db8::7");
  for (const std::string_view host : {"models.example", "MODELS.example:8000", "models.example.",
                                      "198.51.100.7:80", "[2001:DB8::7]:8000", "localhost"}) {
    EXPECT_TRUE(machine.allows(host, nullptr)) << host;
  }
  for (const std::string_view host : {"a.models.example", "example", "198.51.100.8"}) {
    EXPECT_FALSE(machine.allows(host, nullptr)) << host;
  }
  EXPECT_TRUE(HostCheck::create("*").allows("attacker.example", nullptr));
}

// An address that the machine has got since its start: the connection itself tells it.
TEST(HostCheck, KnowsTheAddressAtWhichTheConnectionCame) {
  const HostCheck machine = HostCheck::create("");
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  ASSERT_EQ(1, ::inet_pton(AF_INET, "198.51.100.7", &v4.sin_addr));
  const auto* const own = reinterpret_cast<const sockaddr*>(&v4);
  EXPECT_TRUE(machine.allows("198.51.100.7:80", own));
  EXPECT_TRUE(machine.allows("[::ffff:198.51.100.7]", own));
  EXPECT_FALSE(machine.allows("198.51.100.8", own));
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  ASSERT_EQ(1, ::inet_pton(AF_INET6, "2001:db8::7", &v6.sin6_addr));
  EXPECT_TRUE(machine.allows("[2001:DB8::7]:80", reinterpret_cast<const sockaddr*>(&v6)));
  EXPECT_FALSE(machine.allows("[2001:db8::8]", reinterpret_cast<const sockaddr*>(&v6)));
  const sockaddr other{.sa_family = AF_UNIX, .sa_data = {}};
  EXPECT_FALSE(machine.allows("198.51.100.7", &other));
}

TEST(HostCheck, AHostListHasNamesAndAddressesAndNoPorts) {
  for (const std::string_view good : {"", "a", "a.b,c-d,1.2.3.4", "::1", "*", "a,*", "x_y"}) {
    EXPECT_TRUE(is_host_list(good)) << good;
  }
  for (const std::string_view bad :
       {",", "a,", ",a", "a,,b", "a b", "a, b", "a:80", "http://a", "*.a", "[::1]", "a/b"}) {
    EXPECT_FALSE(is_host_list(bad)) << bad;
  }
}

}  // namespace
}  // namespace lumen::http
