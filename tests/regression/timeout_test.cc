// Regressions of timeouts and of `inline` in a whole server, over the fake backend: the I/O thread
// is held in a model while clients' bytes and deadlines come.
// Threads: the test's; the server makes its own. Memory: the heap. Errors: failed expectations.
#include <lumen/base/clock.h>

#include "support/engine_turns.h"
#include "support/fake_server.h"
#include "support/wrapping_backend.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace lumen::server {
namespace {

constexpr uint64_t kMs = 1'000'000;

// Holds each call of the model "slow" while `slow` is closed.
class GatedInstance final : public models::Instance {
 public:
  GatedInstance(std::unique_ptr<models::Instance> inner, engine::Gate& slow)
      : inner_(std::move(inner)), slow_(slow) {}
  models::StartOutcome start(models::InferRequest& request,
                             void (*done)(models::InferRequest&) noexcept) noexcept override {
    if (request.model->metadata().name == "slow") slow_.pass();
    return inner_->start(request, done);
  }

 private:
  std::unique_ptr<models::Instance> inner_;
  engine::Gate& slow_;
};

class TimeoutTest : public FakeServer {
 protected:
  TimeoutTest() {
    repository_.add_model("slow");
    repository_.add_model("fast");
    options_.max_body_bytes = 32 << 20;
    options_.engine.queue_type = models::QueueType::kInline;
  }
  void start_with_gate() {
    start(std::make_unique<models::WrappingBackend>(
        models::make_fake_backend(control_), [this](std::unique_ptr<models::Instance> inner) {
          return std::unique_ptr<models::Instance>(
              std::make_unique<GatedInstance>(std::move(inner), slow_));
        }));
  }
  void TearDown() override { slow_.open(); }
  // The I/O thread is inside the model from now on, until slow_ opens.
  HttpClient hold_io_thread() {
    slow_.close();
    HttpClient http(server_->http_address());
    http.send(request("slow"));
    slow_.wait_until_held();
    return http;
  }
  // `late` sends `first`, which one turn of the I/O thread takes in together with a request that
  // holds it again: so its time begins, and the thread is away before any of it has passed. Then it
  // sends `rest`, and the time runs out.
  void send_around_a_hold(HttpClient& late, const std::string& first, const std::string& rest,
                          uint64_t time_ns) {
    const HttpClient before = hold_io_thread();
    late = HttpClient(server_->http_address());
    const HttpClient again(server_->http_address());
    late.send(first);
    again.send(request("slow"));
    slow_.let_one_pass();
    slow_.wait_until_held();
    late.send(rest);
    wait_until_over(time_ns);
    slow_.open();
  }
  static std::string request(const std::string& model) {
    return binary_infer(model, "x", std::string(16, '\0'));
  }
  const telemetry::Counters& counters() const { return server_->counters(); }
  // Until a time that begins now and lasts so long is over by the server's clock too.
  static void wait_until_over(uint64_t ns) {
    const uint64_t end_ns = coarse_now_ns() + ns + 10 * kMs;
    while (coarse_now_ns() < end_ns) std::this_thread::yield();
  }

  engine::Gate slow_;
};

// Was: all models of a turn ran before the first reply left, so that of a fast one waited for the
// slow.
TEST_F(TimeoutTest, TheReplyOfAFastModelDoesNotWaitForASlowOneOfTheSameTurn) {
  start_with_gate();
  HttpClient fast(server_->http_address());
  HttpClient slow(server_->http_address());
  EXPECT_EQ(200, fast.exchange(get_request("/v2/health/live")).status);
  EXPECT_EQ(200, slow.exchange(get_request("/v2/health/live")).status);
  HttpClient first = hold_io_thread();
  // Both are in their sockets when the thread comes back: one turn takes them in.
  fast.send(request("fast"));
  slow.send(request("slow"));
  slow_.let_one_pass();
  EXPECT_EQ(200, fast.read().status) << "while the slow one is held";
  slow_.wait_until_held();
  slow_.open();
  EXPECT_EQ(200, first.read().status);
  EXPECT_EQ(200, slow.read().status);
}

// Was: 408 for a request whose bytes had come in time, because the thread was inside a model.
TEST_F(TimeoutTest, ARequestThatIsWholeInItsSocketIsAnsweredThoughItsHeadsTimeIsOver) {
  options_.timeouts.head_ns = 50 * kMs;
  start_with_gate();
  const std::string whole = request("fast");
  HttpClient late(server_->http_address());
  send_around_a_hold(late, whole.substr(0, 20), whole.substr(20), options_.timeouts.head_ns);
  EXPECT_EQ(200, late.read().status);
  EXPECT_EQ(0u, counters().total("timeouts"));
}

TEST_F(TimeoutTest, AHeadThatIsNotWholeThenEndsWith408) {
  options_.timeouts.head_ns = 50 * kMs;
  start_with_gate();
  const std::string whole = request("fast");
  HttpClient late(server_->http_address());
  send_around_a_hold(late, whole.substr(0, 20), whole.substr(20, 10), options_.timeouts.head_ns);
  EXPECT_EQ(408, late.read().status);
  EXPECT_EQ(1u, counters().total("timeouts"));
}

TEST_F(TimeoutTest, ABodyThatIsInItsSocketCountsThoughItsPeriodIsOver) {
  options_.timeouts.body_period_ns = 50 * kMs;
  start_with_gate();
  const std::string whole = request("fast");
  const size_t part = whole.size() - 8;
  HttpClient late(server_->http_address());
  send_around_a_hold(late, whole.substr(0, part), whole.substr(part),
                     options_.timeouts.body_period_ns);
  EXPECT_EQ(200, late.read().status);
  EXPECT_EQ(0u, counters().total("timeouts"));
}

TEST_F(TimeoutTest, AnIdleConnectionWhoseNextRequestIsInItsSocketIsServed) {
  options_.timeouts.idle_ns = 100 * kMs;
  start_with_gate();
  HttpClient idle(server_->http_address());
  send_around_a_hold(idle, get_request("/v2/health/live"), request("fast"),
                     options_.timeouts.idle_ns);
  EXPECT_EQ(200, idle.read().status);
  EXPECT_EQ(200, idle.read().status);
}

// --- a reader that stalls ------------------------------------------------------------------------

constexpr size_t kReplyBytes = 16 << 20;  // more than the kernel takes in for it

std::string large_request() {
  const std::string bytes = std::to_string(kReplyBytes);
  const std::string json = R"({"inputs":[{"name":"x","datatype":"FP32","shape":[)" +
                           std::to_string(kReplyBytes / 16) +
                           R"(,4],"parameters":{"binary_data_size":)" + bytes +
                           R"(}}],"parameters":{"binary_data_output":true}})";
  return post_request("/v2/models/fast/infer", json + std::string(kReplyBytes, '\0'),
                      "Inference-Header-Content-Length: " + std::to_string(json.size()) + "\r\n");
}

// A client with little room that reads only when it is told to.
UniqueFd connect_with_little_room(const std::string& address) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
  const int room = 4096;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(
      static_cast<uint16_t>(std::strtoul(address.c_str() + address.rfind(':') + 1, nullptr, 10)));
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof(where)) != 0) fd.reset();
  return fd;
}

// Was: the bytes that the kernel took at once counted as the reader's progress, so that it had two
// periods; then a usual close left megabytes with the kernel, which went on offering them.
TEST_F(TimeoutTest, AStalledReaderIsResetAfterOnePeriod) {
  options_.timeouts.write_stall_ns = 300 * kMs;
  options_.timeouts.head_ns = 500 * kMs;  // less than two of those
  options_.engine.queue_type = models::QueueType::kMpmc;
  options_.engine.thread_count = 1;
  start_with_gate();
  const UniqueFd stalled = connect_with_little_room(server_->http_address());
  ASSERT_TRUE(stalled.valid());
  const std::string large = large_request();
  for (size_t sent = 0; sent < large.size();) {
    const ssize_t now = ::send(stalled.get(), large.data() + sent, large.size() - sent, 0);
    ASSERT_GT(now, 0);
    sent += static_cast<size_t>(now);
  }
  while (counters().total("responses_2xx") + counters().total("responses_4xx") == 0) {
    std::this_thread::yield();
  }
  ASSERT_EQ(1u, counters().total("responses_2xx"));
  HttpClient later(server_->http_address());
  later.send("GET ");
  EXPECT_EQ(408, later.read().status);
  EXPECT_EQ(2u, counters().total("timeouts")) << "the reader's time was up before";
  size_t got = 0;
  std::vector<char> buffer(1 << 20);
  ssize_t last = 0;
  while ((last = ::recv(stalled.get(), buffer.data(), buffer.size(), 0)) > 0) {
    got += static_cast<size_t>(last);
  }
  EXPECT_EQ(last, -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_LT(got, kReplyBytes);
}

}  // namespace
}  // namespace lumen::server
