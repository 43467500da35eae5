// URLs: which are understood, and the errors for the others.
#include <lumen/client/target.h>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstring>
#include <string>

namespace lumen::client {
namespace {

sockaddr_in ipv4_of(const Target& target) {
  sockaddr_in address{};
  std::memcpy(&address, &target.address, sizeof(address));
  return address;
}

std::string unix_path_of(const Target& target) {
  sockaddr_un address{};
  std::memcpy(&address, &target.address, sizeof(address));
  return address.sun_path;
}

TEST(TargetUrl, TakesHostAndPort) {
  const auto target = parse_target("http://127.0.0.1:8123");
  ASSERT_TRUE(target.ok());
  EXPECT_FALSE(target->is_unix());
  EXPECT_EQ(ntohs(ipv4_of(*target).sin_port), 8123);
  EXPECT_EQ(ntohl(ipv4_of(*target).sin_addr.s_addr), INADDR_LOOPBACK);
  EXPECT_EQ(target->host, "127.0.0.1:8123");
  EXPECT_EQ(target->base_path, "");
}

TEST(TargetUrl, TakesPort80WhereNoneIsGiven) {
  const auto target = parse_target("http://127.0.0.1");
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(ntohs(ipv4_of(*target).sin_port), 80);
}

TEST(TargetUrl, KeepsAPrefixWithoutItsLastSlash) {
  const auto target = parse_target("http://127.0.0.1:1/a/b/");
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->base_path, "/a/b");
}

TEST(TargetUrl, TakesAnAddressInBrackets) {
  const auto target = parse_target("http://[::1]:8000");
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->address.ss_family, AF_INET6);
  EXPECT_EQ(target->host, "[::1]:8000");
}

TEST(TargetUrl, TakesThoseOfGrpc) {
  const auto tcp = parse_target("grpc://127.0.0.1:8001/");
  ASSERT_TRUE(tcp.ok());
  EXPECT_TRUE(tcp->is_grpc);
  EXPECT_EQ(ntohs(ipv4_of(*tcp).sin_port), 8001);
  EXPECT_EQ(tcp->host, "127.0.0.1:8001");
  for (const char* url : {"grpc+unix:/run/a.sock", "grpc+unix:///run/a.sock"}) {
    const auto target = parse_target(url);
    ASSERT_TRUE(target.ok()) << url;
    EXPECT_TRUE(target->is_grpc && target->is_unix());
    EXPECT_EQ(unix_path_of(*target), "/run/a.sock");
  }
  for (const char* url : {"grpc://", "grpc://a:1/b", "grpc+unix:", "grpcs://a:1"}) {
    EXPECT_FALSE(parse_target(url).ok()) << url;
  }
  EXPECT_FALSE(parse_target("http://127.0.0.1:1")->is_grpc);
}

TEST(TargetUrl, TakesUnixPathsInEachForm) {
  for (const char* url :
       {"unix:/run/a.sock", "unix:///run/a.sock", "http+unix://%2Frun%2Fa.sock"}) {
    const auto target = parse_target(url);
    ASSERT_TRUE(target.ok()) << url;
    EXPECT_TRUE(target->is_unix()) << url;
    EXPECT_EQ(unix_path_of(*target), "/run/a.sock") << url;
    EXPECT_EQ(target->host, "localhost");
  }
}

TEST(TargetUrl, TakesAPrefixBehindAPercentEncodedPath) {
  const auto target = parse_target("http+unix://%2frun%2fa.sock/base");
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->base_path, "/base");
}

TEST(TargetUrl, RefusesAnUnreachableUrlAndNamesTheForms) {
  const std::string long_path = "unix:/" + std::string(120, 'a');
  for (const std::string& url :
       {std::string("ftp://127.0.0.1"), std::string("https://:443"),
        std::string("grpcs://127.0.0.1/prefix"), std::string("http://127.0.0.1:0"),
        std::string("http://127.0.0.1:65536"), std::string("http://127.0.0.1:80x"),
        std::string("http://:80"), std::string("unix:"), std::string("http+unix://%2"),
        std::string("http+unix://%zz"), std::string("http://a b:1"), long_path}) {
    const auto target = parse_target(url);
    ASSERT_FALSE(target.ok()) << url;
    const std::string message(target.status().message());
    EXPECT_NE(message.find("http://HOST:PORT"), std::string::npos) << message;
  }
}

TEST(TargetUrl, TakesThoseOfTls) {
  const auto http = parse_target("https://127.0.0.1/base");
  ASSERT_TRUE(http.ok());
  EXPECT_NE(http->tls, nullptr);
  EXPECT_FALSE(http->is_grpc);
  EXPECT_EQ(ntohs(ipv4_of(*http).sin_port), 443);
  EXPECT_EQ(http->base_path, "/base");
  const auto grpc = parse_target("grpcs://[::1]:8443");
  ASSERT_TRUE(grpc.ok());
  EXPECT_NE(grpc->tls, nullptr);
  EXPECT_TRUE(grpc->is_grpc);
  EXPECT_EQ(parse_target("http://127.0.0.1")->tls, nullptr);
}

TEST(TargetUrl, RefusesFilesOfTlsThatAreNone) {
  auto target = parse_target("https://127.0.0.1");
  ASSERT_TRUE(target.ok());
  const auto refusal = [&](const TlsOptions& options) {
    const Status status = set_tls(*target, options);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(refusal({.ca = "/nonexistent"}),
            "--tls-ca /nonexistent: No such file or directory; wanted certificates of authorities "
            "in PEM, or 'none'");
  EXPECT_NE(refusal({.cert = "/dev/null"}).find("--tls-cert /dev/null: "), std::string::npos);
  EXPECT_TRUE(set_tls(*target, {.ca = "none"}).ok());
  auto plain = parse_target("http://127.0.0.1");
  EXPECT_NE(std::string(set_tls(*plain, {.ca = "none"}).message()).find("wanted https://"),
            std::string::npos);
}

TEST(TargetUrl, TellsAUrlFromTheNameOfABench) {
  EXPECT_TRUE(looks_like_url("http://a"));
  EXPECT_TRUE(looks_like_url("unix:/a"));
  EXPECT_TRUE(looks_like_url("127.0.0.1:8000"));
  EXPECT_FALSE(looks_like_url("shared-buffer"));
}

TEST(StartConnecting, TellsWhyThereIsNoConnectionToAUnixSocket) {
  const auto target = parse_target("unix:/nonexistent/lumen.sock");
  ASSERT_TRUE(target.ok());
  const Connecting connecting = start_connecting(*target, 1'000'000'000u);
  EXPECT_FALSE(connecting.fd.valid());
  EXPECT_EQ(connecting.error, ENOENT);
}

}  // namespace
}  // namespace lumen::client
