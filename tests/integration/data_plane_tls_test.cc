// A request over TLS takes no lock on the data plane, and allocates nothing outside of OpenSSL, on
// either loop. OpenSSL's record layer allocates and frees a few small blocks for each record, which
// are told apart and printed; its handshakes are another thread's.
#include "support/call_counter.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include "integration/data_plane_server.h"
#include "support/certificate_file.h"
#include "support/tls_client.h"

#include <gtest/gtest.h>
#include <openssl/crypto.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace lumen::server {
namespace {

// OpenSSL's calls of the heap count as the backend's: it takes these before it has allocated.
void* allocate(size_t bytes, const char*, int) {
  const testing_support::BackendCalls calls;
  return std::malloc(bytes);
}
void* reallocate(void* memory, size_t bytes, const char*, int) {
  const testing_support::BackendCalls calls;
  return std::realloc(memory, bytes);
}
void release(void* memory, const char*, int) {
  const testing_support::BackendCalls calls;
  std::free(memory);
}
const bool tells_openssl_apart = CRYPTO_set_mem_functions(allocate, reallocate, release) == 1;

class DataPlaneTls : public testing::TestWithParam<net::LoopKind> {
 protected:
  void start() {
    ASSERT_TRUE(tells_openssl_apart);
    // Where the kernel has no io_uring both are epoll.
    served.options.loop = net::choose_loop(GetParam()).ok() ? GetParam() : net::LoopKind::kEpoll;
    served.options.tls_cert = served.files.path() / "server.pem";
    test::write_certificate(served.options.tls_cert);
    served.start();
  }
  void expect_nothing_counted(const std::string& request, int status) {
    TlsClient client(served.server->http_address());
    ASSERT_TRUE(client.connect());
    for (int i = 0; i < 5; ++i) ASSERT_EQ(status, client.exchange(request));
    testing_support::open_call_window();
    for (int i = 0; i < kRequests; ++i) EXPECT_EQ(status, client.exchange(request));
    expect_only_openssl(request.substr(0, request.find("\r\n")));
  }
  static void expect_only_openssl(const std::string& what) {
    const WindowCounts counts = testing_support::close_call_window();
    expect_none(what, counts.data_plane);
    std::printf("%s: %.1f allocations by OpenSSL and the backend\n", what.c_str(),
                static_cast<double>(counts.backend.allocations) / kRequests);
    EXPECT_GT(counts.backend.allocations, 0u) << "the counter sees what OpenSSL does";
  }
  DataPlaneServer served;
};

TEST_P(DataPlaneTls, ARequestAllocatesInOpenSslAlone) {
  start();
  expect_nothing_counted(kMlpRequest, 200);
  expect_nothing_counted(binary_infer("identity", "input", std::string(602'112, '\0')), 200);
  expect_nothing_counted(get_request("/v2/models/none"), 404);
}

// Its handshakes and its end are calls of another thread.
TEST_P(DataPlaneTls, AConnectionAllocatesInOpenSslAlone) {
  start();
  const auto visit = [this] {
    TlsClient client(served.server->http_address());
    ASSERT_TRUE(client.connect());
    EXPECT_EQ(200, client.exchange(kMlpRequest));
  };
  for (int i = 0; i < 100; ++i) visit();  // each place for a connection has been used once
  testing_support::open_call_window();
  for (int i = 0; i < kRequests; ++i) visit();
  expect_only_openssl("a connection");
}

INSTANTIATE_TEST_SUITE_P(Loops, DataPlaneTls,
                         testing::Values(net::LoopKind::kEpoll, net::LoopKind::kIoUring),
                         [](const testing::TestParamInfo<net::LoopKind>& one) {
                           return one.param == net::LoopKind::kEpoll ? "Epoll" : "IoUring";
                         });

}  // namespace
}  // namespace lumen::server

#endif
