// A whole server and a client of HTTP/2 that breaks its rules: frames of any kind, calls of gRPC
// and requests of REST, cut anywhere. An infer request on a stream that no frame of the fuzzer
// names must be answered with its own numbers.
//
// An input is a list of steps (see step()), so that mutations keep whole frames.
// Threads: the fuzzer's; the server's own. Memory: the heap. Errors: CHECK.
#include "fuzz/live_server.h"
#include "support/grpc_client.h"

#include <map>
#include <set>
#include <vector>

namespace {

using lumen::fuzz::Connection;
using lumen::fuzz::LiveServer;
using lumen::fuzz::of_four;
using lumen::fuzz::Steps;
using lumen::test::grpc_message;
using lumen::test::h2_frame;
using lumen::test::h2_headers;

constexpr uint8_t kData = 0, kHeaders = 1, kPing = 6, kKinds = 10;
constexpr uint8_t kEndStream = 1, kAck = 1, kEndHeaders = 4;

constexpr std::array<std::string_view, 12> kMethods = {
    "/inference.GRPCInferenceService/ModelInfer",
    "/inference.GRPCInferenceService/ModelStreamInfer",
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ModelReady",
    "/inference.GRPCInferenceService/ServerMetadata",
    "/inference.GRPCInferenceService/ModelMetadata",
    "/inference.GRPCInferenceService/ModelStatistics",
    "/inference.GRPCInferenceService/RepositoryIndex",
    "/inference.GRPCInferenceService/SystemSharedMemoryStatus",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"};
constexpr size_t kInfer = 0, kStreamInfer = 1;
constexpr std::array<std::string_view, 4> kPaths = {"/v2/health/ready", "/v2/models/plus_one",
                                                    "/v2/models/plus_one/infer", "/metrics"};

std::string field(uint8_t number, std::string_view value) {
  std::string bytes(1, static_cast<char>(number << 3 | 2));
  size_t left = value.size();
  for (; left >= 128; left /= 128) bytes.push_back(static_cast<char>(left % 128 + 128));
  bytes.push_back(static_cast<char>(left));
  return bytes.append(value);
}

// A ModelInferRequest of so many rows of four numbers that are `value`; fewer than 128.
std::string infer_message(float value, uint8_t rows) {
  std::string tensor;
  for (uint8_t i = 0; i < rows; ++i) tensor += of_four(value);
  const std::string shape{static_cast<char>(rows), 4};
  return field(1, "plus_one") + field(5, field(1, "x") + field(2, "FP32") + field(3, shape)) +
         field(7, tensor);
}

class Client final : public Connection {
 public:
  explicit Client(LiveServer& server) : Connection(server) {
    send(lumen::test::kH2Preface);
    send(h2_frame(4, 0, 0, ""));
  }

 private:
  void step(Steps& steps) override {
    const uint8_t kind = steps.byte() % 16;
    if (kind < kKinds) return any_frame(kind, steps);
    switch (kind) {
      case 10: return call(steps);
      case 11: return rest(steps);
      case 12: return another_message(steps);
      case 13: return part_of_message(steps);
      case 14: {
        const uint8_t part = steps.byte();
        return part == 0 ? settle() : cut(part);
      }
      default: return send_any(steps);
    }
  }
  void finish() override {
    settle();
    settle();
    end();
    for (const auto& [stream, asked] : asked_) check_replies(stream, asked);
  }

  struct Asked {
    bool is_stream = false;
    std::set<std::string> rows;  // the last row of each reply
  };

  // Streams of the fuzzer's frames are few, so that they are those of calls.
  static uint32_t some_stream(Steps& steps) { return steps.byte() % 16; }
  void touch(uint32_t stream) { asked_.erase(stream); }

  void any_frame(uint8_t kind, Steps& steps) {
    const uint8_t flags = steps.byte();
    const uint32_t stream = some_stream(steps);
    touch(stream);
    if (kind == kHeaders || kind > 8) last_stream_ = std::max(last_stream_, stream);
    send(h2_frame(kind, flags, stream, steps.bytes(steps.byte())));
  }

  [[nodiscard]] uint32_t next_stream() {
    last_stream_ = (last_stream_ + 1) | 1;
    return last_stream_;
  }

  // Of gRPC: an infer request of its own numbers, or a method with the fuzzer's message.
  void call(Steps& steps) {
    const size_t method = steps.byte() % (2 * kMethods.size());
    const size_t which = method < kMethods.size() ? method : method % 2;  // half of them infer
    const uint32_t stream = next_stream();
    send(h2_frame(kHeaders, kEndHeaders, stream,
                  h2_headers({{":method", "POST"},
                              {":scheme", "http"},
                              {":path", std::string(kMethods[which])},
                              {":authority", "test"},
                              {"content-type", "application/grpc"},
                              {"te", "trailers"}})));
    const uint8_t shape = steps.byte();
    const bool is_stream = which == kStreamInfer;
    if (which != kInfer && !is_stream) {
      send(h2_frame(kData, shape % 2 == 0 ? kEndStream : 0, stream,
                    grpc_message(steps.bytes(steps.byte()))));
      return;
    }
    open_ = stream;
    asked_[stream].is_stream = is_stream;
    message(stream, shape, /*is_last=*/!is_stream || shape % 2 == 0);
  }

  // The numbers and their frames: one frame, or several of a few bytes.
  void message(uint32_t stream, uint8_t shape, bool is_last) {
    const auto rows = static_cast<uint8_t>(1 + (shape & 16 ? 120 : shape / 2 % 8));
    const float value = server().next_value();
    const auto asked = asked_.find(stream);
    if (asked != asked_.end()) asked->second.rows.insert(of_four(value + 1));
    const std::string bytes = grpc_message(infer_message(value, rows));
    const size_t most = shape & 32 ? bytes.size() / 3 + 1 : bytes.size();
    for (size_t at = 0; at < bytes.size(); at += most) {
      const bool ends = is_last && at + most >= bytes.size();
      send(h2_frame(kData, ends ? kEndStream : 0, stream, bytes.substr(at, most)));
    }
  }

  void another_message(Steps& steps) {
    const uint8_t shape = steps.byte();
    message(open_, shape, shape % 8 == 0);
  }

  // The beginning of one, whose rest the next steps may bring.
  void part_of_message(Steps& steps) {
    const std::string bytes = grpc_message(infer_message(server().next_value(), 120));
    touch(open_);
    send(h2_frame(kData, 0, open_, bytes.substr(0, size_t{8} * steps.byte())));
  }

  void rest(Steps& steps) {
    const std::string_view path = kPaths[steps.byte() % kPaths.size()];
    const std::string_view body = steps.bytes(steps.byte());
    const uint32_t stream = next_stream();
    send(h2_frame(kHeaders, kEndHeaders | (body.empty() ? kEndStream : 0), stream,
                  h2_headers({{":method", body.empty() ? "GET" : "POST"},
                              {":scheme", "http"},
                              {":path", std::string(path)},
                              {":authority", "test"}})));
    if (!body.empty()) send(h2_frame(kData, kEndStream, stream, body));
  }

  // Until the server has read all frames so far.
  void settle() {
    if (!is_whole()) return;
    const std::string mark = std::to_string(10'000'000 + ++pings_);
    send(h2_frame(kPing, 0, 0, mark));
    flush();
    while (!is_over() && answered_ != mark) receive();
  }

  void on_received(std::string_view bytes) override {
    in_ += bytes;
    while (take_frame()) continue;
  }

  [[nodiscard]] static uint32_t number_at(std::string_view bytes, size_t at, size_t size) {
    uint32_t number = 0;
    for (const char byte : bytes.substr(at, size))
      number = number << 8 | static_cast<uint8_t>(byte);
    return number;
  }

  bool take_frame() {
    constexpr size_t kHeadBytes = 9;
    if (in_.size() < kHeadBytes) return false;
    const uint32_t length = number_at(in_, 0, 3);
    if (in_.size() < kHeadBytes + length) return false;
    const auto kind = static_cast<uint8_t>(in_[3]);
    const uint32_t stream = number_at(in_, 5, 4);
    const std::string payload = in_.substr(kHeadBytes, length);
    // No stream of the server's own, and no frame that it has no reason for.
    LUMEN_CHECK(kind < kKinds && kind != 2 && kind != 5 && (stream == 0 || stream % 2 == 1));
    if (kind == kData) replies_[stream] += payload;
    if (kind == kPing && (in_[4] & kAck) != 0) answered_ = payload;
    in_.erase(0, kHeadBytes + length);
    return true;
  }

  // Each whole message is the reply to a request of that stream, or tells an error of one.
  void check_replies(uint32_t stream, const Asked& asked) {
    constexpr size_t kPrefixBytes = 5;
    constexpr char kErrorField = 1 << 3 | 2;
    std::string_view rest = replies_[stream];
    while (rest.size() >= kPrefixBytes) {
      const size_t size = number_at(rest, 1, 4);
      if (rest.size() < kPrefixBytes + size) return;
      const std::string_view reply = rest.substr(kPrefixBytes, size);
      rest.remove_prefix(kPrefixBytes + size);
      if (asked.is_stream && reply.starts_with(kErrorField)) continue;
      LUMEN_CHECK(reply.size() >= 16);
      LUMEN_CHECK(asked.rows.contains(std::string(reply.substr(reply.size() - 16))));
    }
  }

  std::string in_;
  uint32_t last_stream_ = 0;
  uint32_t open_ = 1;
  uint64_t pings_ = 0;
  std::string answered_;
  std::map<uint32_t, Asked> asked_;  // by stream; those that the fuzzer has touched are not there
  std::map<uint32_t, std::string> replies_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static LiveServer server;
  Steps steps(data, size);
  Client(server).live(steps);
  return 0;
}
