// Requests of several threads to a model's process, which answers, is late, and ends; in C++ on
// both sides, so that ThreadSanitizer sees the server's. The test program is the interpreter, too.
#include "backends/python/step_link.h"
#include "backends/python/step_message.h"

#include <lumen/base/clock.h>
#include <lumen/bus/listener.h>
#include <lumen/bus/request_reply.h>

#include "fuzz/fuzz_support.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace lumen::backends::python {
namespace {

using models::InferRequest;
using models::StartOutcome;

// The first number of a request says how it is answered: with the same numbers, late, or not at
// all.
constexpr float kEcho = 0;
constexpr float kSleep = 1;
constexpr float kEnd = 2;
constexpr std::chrono::milliseconds kLate{30};

void answer(bus::Responder& responder, const bus::Responder::Request& request) {
  if (request.type_id == static_cast<uint32_t>(StepMessage::kRun)) {
    float first = kEcho;
    const size_t at = 2 * kMessageAlign;  // behind the table of one tensor
    if (request.data.size() >= at + sizeof(first)) {
      std::memcpy(&first, request.data.data() + at, sizeof(first));
    }
    if (first == kEnd) _exit(3);
    if (first == kSleep) std::this_thread::sleep_for(kLate);  // sleep: the time of a slow model
  }
  (void)responder.reply(request.id, request.data, request.type_id);
}

void serve(const std::string& socket, uint64_t capacity) {
  bus::ListenerOptions options;
  options.role = bus::Role::kBoth;
  options.capacity = capacity;
  auto listener = bus::Listener::create(socket, options);
  if (!listener.ok()) _exit(1);
  bus::Listener::Accepted accepted = (*listener)->accept();
  if (!accepted.connection) _exit(1);
  bus::Responder responder(std::move(*accepted.connection));
  while (responder.wait() == bus::Outcome::kOk) {
    while (const auto request = responder.try_take()) answer(responder, *request);
    responder.release();
  }
  _exit(0);
}

// Started as a model's interpreter, before main().
const bool kIsInterpreter = [] {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::string socket;
  uint64_t capacity = 0;
  for (size_t at = 0; at < all.size(); at += std::strlen(all.c_str() + at) + 1) {
    const std::string_view word = all.c_str() + at;
    if (word.starts_with("--bus=")) socket = word.substr(6);
    if (word.starts_with("--capacity=")) capacity = std::stoull(std::string(word.substr(11)));
  }
  if (all.find("lumen_engine.step") == std::string::npos) return false;
  serve(socket, capacity);
  return true;
}();

std::string this_program() {
  std::array<char, 4096> path{};
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  return {path.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

std::unique_ptr<StepLink> open_link() {
  Shape any;
  EXPECT_TRUE(any.append(Shape::kDynamic));
  StepSource source{.python = {.interpreter = this_program(), .package_folder = {}},
                    .file = "model.py",
                    .metadata = {},
                    .ring_bytes = 1 << 16};
  source.metadata.name = "m";
  source.metadata.inputs = {{.name = "x", .type = ElementType::kFp32, .shape = any}};
  source.metadata.outputs = {{.name = "y", .type = ElementType::kFp32, .shape = any}};
  Result<std::unique_ptr<StepLink>> link = StepLink::open(std::move(source));
  EXPECT_TRUE(link.ok()) << link.status().message();
  return link.ok() ? std::move(*link) : nullptr;
}

// Of all requests: a waiter may destroy its own while another thread still tells of the end.
std::mutex ends_mutex;
std::condition_variable ended;

// One request and its end.
class Asked {
 public:
  Asked(float first, size_t numbers, uint64_t deadline_ns) : memory_(1 << 20), x_(numbers) {
    for (size_t i = 0; i < numbers; ++i) x_[i] = static_cast<float>(i);
    x_[0] = first;
    EXPECT_TRUE(input_.shape.append(static_cast<int64_t>(numbers)));
    input_.type = ElementType::kFp32;
    input_.data = reinterpret_cast<std::byte*>(x_.data());
    input_.byte_size = numbers * sizeof(float);
    request_.inputs = {&input_, 1};
    request_.memory = &memory_;
    request_.deadline_ns = deadline_ns;
    request_.owner = this;
  }

  void start(StepLink& link) {
    if (link.start(request_, told) == StartOutcome::kDone) told(request_);
  }
  void wait() const {
    std::unique_lock lock(ends_mutex);
    ended.wait(lock, [this] { return ends_ > 0; });
  }
  // An answer that is not its own is a failure of the test.
  [[nodiscard]] Code end() const {
    const std::lock_guard lock(ends_mutex);
    EXPECT_EQ(ends_, 1);
    if (!request_.status.ok()) return request_.status.code();
    EXPECT_EQ(request_.outputs.size(), 1u);
    EXPECT_EQ(request_.outputs[0].byte_size, input_.byte_size);
    EXPECT_EQ(std::memcmp(request_.outputs[0].data, x_.data(), input_.byte_size), 0);
    return Code::kOk;
  }

 private:
  static void told(InferRequest& request) noexcept {
    auto& asked = *static_cast<Asked*>(request.owner);
    const std::lock_guard lock(ends_mutex);
    ++asked.ends_;
    ended.notify_all();
  }

  fuzz::Memory memory_;
  std::vector<float> x_;
  TensorView input_;
  InferRequest request_;
  int ends_ = 0;  // under ends_mutex
};

bool serves(StepLink& link) {
  Asked asked(kEcho, 1, UINT64_MAX);
  asked.start(link);
  asked.wait();
  return asked.end() == Code::kOk;
}

TEST(StepLinkTest, EachRequestOfManyThreadsEndsOnceWithItsOwnAnswerOrAnError) {
  const std::unique_ptr<StepLink> link = open_link();
  ASSERT_NE(link, nullptr);
  std::array<std::atomic<uint64_t>, 3> counts{};
  const auto ask = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int round = 0; round < 150; ++round) {
      // Several at once, larger together than the ring's 64 KiB.
      std::vector<std::unique_ptr<Asked>> several;
      for (int i = 0; i < 6; ++i) {
        const bool ends = seed == 1 && round % 50 == 25 && i == 3;
        const float first = ends ? kEnd : random() % 50 == 0 ? kSleep : kEcho;
        const bool has_deadline = random() % 3 == 0;
        const uint64_t deadline_ns = has_deadline ? now_ns() + random() % 20'000'000 : UINT64_MAX;
        several.push_back(std::make_unique<Asked>(first, 1 + random() % 4000, deadline_ns));
        several.back()->start(*link);
      }
      for (const auto& asked : several) {
        asked->wait();
        const Code end = asked->end();
        const bool is_known =
            end == Code::kOk || end == Code::kDeadlineExceeded || end == Code::kUnavailable;
        EXPECT_TRUE(is_known) << static_cast<int>(end);
        ++counts[end == Code::kOk ? 0 : end == Code::kDeadlineExceeded ? 1 : 2];
      }
      while (!serves(*link)) std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) threads.emplace_back(ask, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counts[0] + counts[1] + counts[2], 4u * 150 * 6);
  EXPECT_GT(counts[0], 1000u);
  EXPECT_GT(counts[2], 0u);
  EXPECT_GE(link->restarts(), 1u);  // a request to end may be late itself
}

TEST(StepLinkTest, ARequestThatWaitsForRoomKeepsItsDeadline) {
  const std::unique_ptr<StepLink> link = open_link();
  ASSERT_NE(link, nullptr);
  // The first is taken by the process, the next fill the ring.
  std::vector<std::unique_ptr<Asked>> first;
  for (int i = 0; i < 8; ++i) {
    first.push_back(std::make_unique<Asked>(kSleep, 4000, UINT64_MAX));
    first.back()->start(*link);
  }
  Asked late(kEcho, 4000, now_ns() + 5'000'000);
  late.start(*link);
  late.wait();
  EXPECT_EQ(late.end(), Code::kDeadlineExceeded);
  for (const auto& asked : first) {
    asked->wait();
    EXPECT_EQ(asked->end(), Code::kOk);
  }
}

}  // namespace
}  // namespace lumen::backends::python
