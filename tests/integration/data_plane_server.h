// Counts the calls of a server's data plane: the server with its backend's calls told apart, and
// the window.
// Threads: the test's; the server makes its own. Memory: the heap. Errors: failed expectations.
#pragma once

#include "support/call_counter.h"

#include <lumen/backends/openvino.h>
#include <lumen/server/server.h>

#include "support/http_client.h"
#include "support/source_dir.h"
#include "support/temp_repository.h"
#include "support/wrapping_backend.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace lumen::server {

using models::QueueType;
using testing_support::CallCounts;
using testing_support::WindowCounts;

enum class Deliberate { kNothing, kAllocation, kLock };

inline constexpr int kRequests = 100;

// The `done` of the requests that a backend has pending, so that the calls in it are counted.
class CountedCompletions {
 public:
  using Done = void (*)(models::InferRequest&) noexcept;

  // Before the request is started. Returns the function to start it with.
  static Done add(models::InferRequest& request, Done done) noexcept {
    for (Entry& entry : entries) {
      models::InferRequest* none = nullptr;
      if (!entry.request.compare_exchange_strong(none, &request)) continue;
      entry.done = done;
      return run;
    }
    std::abort();  // more than any test has in flight
  }
  // Takes the request out; its own `done`.
  static Done take(models::InferRequest& request) noexcept {
    for (Entry& entry : entries) {
      if (entry.request.load() != &request) continue;
      const Done done = entry.done;
      entry.request.store(nullptr);
      return done;
    }
    std::abort();
  }

 private:
  struct Entry {
    std::atomic<models::InferRequest*> request;  // nullptr: free
    Done done;
  };
  static void run(models::InferRequest& request) noexcept {
    const Done done = take(request);
    const testing_support::CompletionCalls calls;
    done(request);
  }
  static inline std::array<Entry, 64> entries{};
};

// The backend's own calls are its business, unless a test wants one to be seen.
class UncountedInstance final : public models::Instance {
 public:
  UncountedInstance(std::unique_ptr<models::Instance> inner, Deliberate deliberate)
      : inner_(std::move(inner)), deliberate_(deliberate) {}
  models::StartOutcome start(models::InferRequest& request,
                             void (*done)(models::InferRequest&) noexcept) noexcept override {
    if (deliberate_ == Deliberate::kAllocation) {
      void* volatile memory = std::malloc(16);  // volatile: the compiler may drop an unused pair
      std::free(memory);
    }
    if (deliberate_ == Deliberate::kLock) const std::lock_guard lock(mutex_);
    const testing_support::BackendCalls calls;
    const auto outcome = inner_->start(request, CountedCompletions::add(request, done));
    if (outcome == models::StartOutcome::kDone) (void)CountedCompletions::take(request);
    return outcome;
  }
  uint32_t max_in_flight() const noexcept override { return inner_->max_in_flight(); }

 private:
  std::unique_ptr<models::Instance> inner_;
  const Deliberate deliberate_;
  std::mutex mutex_;
};

class DataPlaneServer {
 public:
  DataPlaneServer() {
    options.http_address = "127.0.0.1:0";
    options.unix_path = files.path() / "s.sock";
    options.model_repository = test::source_path("models");
    options.max_active_requests = 16;
    options.max_connections = 32;
    options.telemetry_csv_path = files.path() / "requests.csv";
    // Nothing listens there: the thread that sends spans has work all the same.
    options.otlp_endpoint = "unix:" + (files.path() / "collector.sock").string();
    options.otlp_one_in = 2;
  }
  void start(std::unique_ptr<models::Backend> backend = backends::make_openvino(),
             Deliberate deliberate = Deliberate::kNothing) {
    auto wrap = [deliberate](std::unique_ptr<models::Instance> inner) {
      return std::unique_ptr<models::Instance>(
          std::make_unique<UncountedInstance>(std::move(inner), deliberate));
    };
    auto started =
        Server::start(options, std::make_unique<models::WrappingBackend>(std::move(backend), wrap));
    ASSERT_TRUE(started.ok()) << started.status().message();
    server = std::move(*started);
  }
  HttpClient client(bool over_unix) const {
    return over_unix ? HttpClient::over_unix(server->unix_path())
                     : HttpClient(server->http_address());
  }
  // Sends `request` so often over each of so many connections at once, after a few to warm up, and
  // counts.
  WindowCounts count(const std::string& request, bool over_unix = false, size_t connections = 1,
                     int status = 200) {
    return count_each(std::vector<std::string>(connections, request), over_unix, status);
  }
  // The same with a connection for each of `requests`, which are sent one after the other and then
  // read.
  WindowCounts count_each(const std::vector<std::string>& requests, bool over_unix = false,
                          int status = 200) {
    std::vector<HttpClient> clients;
    clients.reserve(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) clients.push_back(client(over_unix));
    const auto round = [&] {
      for (size_t i = 0; i < clients.size(); ++i) EXPECT_TRUE(clients[i].send(requests[i]));
      for (HttpClient& one : clients) EXPECT_EQ(status, one.read().status);
    };
    for (int i = 0; i < 5; ++i) round();
    const telemetry::Counters& counters = server->counters();
    const uint64_t parks_before = counters.total("worker_parks");
    const uint64_t heap_calls_before = counters.total("request_heap_calls");
    testing_support::open_call_window();
    for (int i = 0; i < kRequests; ++i) round();
    const WindowCounts counts = testing_support::close_call_window();
    parks_within = counters.total("worker_parks") - parks_before;
    heap_calls_within = counters.total("request_heap_calls") - heap_calls_before;
    return counts;
  }
  telemetry::ModelCounters counters_of(const char* model) const {
    return server->models().find(model, "")->counters();
  }

  models::TempRepository files;
  ServerOptions options;
  std::unique_ptr<Server> server;
  uint64_t parks_within = 0;  // of the last count()
  uint64_t heap_calls_within = 0;
};

inline const std::string kMlpRequest = binary_infer("mlp", "input", std::string(1024, '\0'));
// The same as a part of a trace.
inline const std::string kTracedRequest =
    std::string(kMlpRequest)
        .insert(kMlpRequest.find("\r\n") + 2,
                "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n");

inline void expect_none(const std::string& what, const CallCounts& counts) {
  EXPECT_EQ(0u, counts.allocations) << what;
  EXPECT_EQ(0u, counts.frees) << what;
  EXPECT_EQ(0u, counts.all_locks()) << what;
}

}  // namespace lumen::server
