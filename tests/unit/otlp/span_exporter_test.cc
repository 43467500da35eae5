// SpanExporter: threads that write, name and count while a collector takes messages, and the ends
// that a test in Python can't time. tests/integration/test_otlp.py has the kinds of collectors.
// Threads: up to eight. Memory: the heap. Errors: by gtest.
#include <lumen/otlp/span_exporter.h>

#include <lumen/base/clock.h>
#include <lumen/base/unique_fd.h>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace lumen::otlp {
namespace {

// Answers each request with `reply`, once it has all of it; with an empty one it stays silent.
class Collector {
 public:
  explicit Collector(std::string reply) : reply_(std::move(reply)) {
    std::string folder = (std::filesystem::temp_directory_path() / "lumen-otlp-XXXXXX").string();
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    path_ = folder + "/s";
    listener_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    EXPECT_EQ(::listen(listener_.get(), 64), 0);
    EXPECT_EQ(::pipe2(stop_.data(), O_CLOEXEC), 0);
    thread_ = std::thread([this] { run(); });
  }
  ~Collector() {
    (void)::close(stop_[1]);
    thread_.join();
    (void)::close(stop_[0]);
    std::filesystem::remove_all(std::filesystem::path(path_).parent_path());
  }
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;
  [[nodiscard]] std::string url() const { return "unix:" + path_; }

 private:
  bool wait_for(int fd) {
    std::array<pollfd, 2> wanted = {pollfd{fd, POLLIN, 0}, pollfd{stop_[0], POLLIN, 0}};
    return ::poll(wanted.data(), wanted.size(), -1) > 0 && wanted[1].revents == 0;
  }
  void run() {
    while (wait_for(listener_.get())) {
      const UniqueFd one(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      std::string received;
      while (!is_whole(received) && wait_for(one.get())) {
        std::array<char, 65536> bytes;
        const ssize_t count = ::read(one.get(), bytes.data(), bytes.size());
        if (count <= 0) break;
        received.append(bytes.data(), static_cast<size_t>(count));
      }
      if (is_whole(received) && !reply_.empty()) {
        EXPECT_EQ(::write(one.get(), reply_.data(), reply_.size()), std::ssize(reply_));
      }
    }
  }
  [[nodiscard]] bool is_whole(const std::string& received) const {
    if (reply_.empty()) return false;  // until the client goes
    const size_t head = received.find("\r\n\r\n");
    const size_t at = received.find("Content-Length: ");
    return head != std::string::npos &&
           received.size() >= head + 4 + std::stoul(received.substr(at + 16));
  }

  const std::string reply_;
  std::string path_;
  UniqueFd listener_;
  std::array<int, 2> stop_{};
  std::thread thread_;
};

constexpr std::string_view kTaken = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

telemetry::RequestRecord record_of(uint16_t model, uint64_t sequence) {
  telemetry::RequestRecord record;
  record.sequence = sequence;
  record.model = model;
  record.stage_ns[7] = 1000;
  return record;
}

TEST(SpanExporter, EachRecordIsExportedOrDroppedWhileModelsAreNamed) {
  Collector collector{std::string(kTaken)};
  SpanExporterOptions options;
  options.endpoint = collector.url();
  options.flush_delay_ns = 1'000'000;
  const std::unique_ptr<SpanExporter> exporter = SpanExporter::start(options).value();
  constexpr uint64_t kThreads = 4, kEach = 20'000;
  std::vector<std::thread> writers;
  writers.reserve(kThreads);
  std::atomic<uint64_t> refused{0};
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    writers.emplace_back([&, thread] {
      for (uint64_t i = 0; i < kEach; ++i) {
        const bool is_kept = exporter->log().write(
            record_of(static_cast<uint16_t>(i % 3), 1 + thread + i * kThreads));
        if (!is_kept) refused.fetch_add(1);
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    exporter->name_model(static_cast<uint16_t>(i % 4), "model-" + std::to_string(i));
    (void)exporter->counters();
  }
  for (std::thread& writer : writers) writer.join();
  exporter->close();
  const SpanExporterCounters counters = exporter->counters();
  EXPECT_EQ(counters.exported + counters.dropped, kThreads * kEach);
  EXPECT_EQ(counters.dropped, refused.load());
  EXPECT_GT(counters.exported, 0u);
  EXPECT_EQ(counters.failures, 0u);
}

// A stop waits for the attempt that runs and for no later one of the same message.
TEST(SpanExporter, AStopDoesNotWaitForALaterAttempt) {
  Collector collector("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
  std::atomic<int> told{0};
  SpanExporterOptions options;
  options.endpoint = collector.url();
  options.flush_delay_ns = 1'000'000;
  options.first_delay_ns = 3'600'000'000'000;
  options.on_error = [&](const Status& status) {
    EXPECT_NE(std::string(status.message()).find("answered 503"), std::string::npos);
    told.fetch_add(1);
  };
  const std::unique_ptr<SpanExporter> exporter = SpanExporter::start(options).value();
  EXPECT_TRUE(exporter->log().write(record_of(0, 1)));
  while (exporter->counters().failures == 0) std::this_thread::yield();
  EXPECT_TRUE(exporter->log().write(record_of(0, 2)));
  exporter->close();
  const SpanExporterCounters counters = exporter->counters();
  EXPECT_EQ(counters.dropped, 2u);
  EXPECT_EQ(counters.exported, 0u);
  EXPECT_EQ(told.load(), 1);
}

TEST(SpanExporter, ACollectorThatIsSilentCostsItsTimeoutAndRecordsBeyondTheBuffersAreDropped) {
  Collector collector("");
  SpanExporterOptions options;
  options.endpoint = collector.url();
  options.flush_delay_ns = 1'000'000;
  options.timeout_ns = 50'000'000;
  options.first_delay_ns = 1'000'000;
  const std::unique_ptr<SpanExporter> exporter = SpanExporter::start(options).value();
  constexpr uint64_t kRecords = 100'000;  // the four buffers have 26,212
  for (uint64_t i = 1; i <= kRecords; ++i) exporter->log().write(record_of(0, i));
  exporter->close();
  const SpanExporterCounters counters = exporter->counters();
  EXPECT_EQ(counters.dropped, kRecords);
  EXPECT_GT(counters.failures, 0u);
}

}  // namespace
}  // namespace lumen::otlp
