// A whole server and a client of HTTP/1.1: infer requests in each form that a body has, one behind
// the other, cut anywhere, among the fuzzer's own bytes. Requests before the first of these bytes
// must be answered in their order, with their own numbers.
//
// Threads: the fuzzer's; the server's own. Memory: the heap. Errors: CHECK.
#include "fuzz/http_replies.h"
#include "fuzz/live_server.h"
#include "support/compress.h"

#include <optional>

namespace {

using lumen::fuzz::Connection;
using lumen::fuzz::HttpReplies;
using lumen::fuzz::LiveServer;
using lumen::fuzz::of_four;
using lumen::fuzz::Steps;

constexpr std::array<std::string_view, 6> kPaths = {
    "/v2/health/ready",         "/v2/models/plus_one", "/v2/models/plus_one/infer", "/metrics", "/",
    "/v2/models/plus_one/stats"};

std::string infer_json(uint8_t rows, const std::string& rest) {
  return R"({"inputs":[{"name":"x","datatype":"FP32","shape":[)" + std::to_string(rows) + ",4]," +
         rest + R"(}],"parameters":{"binary_data_output":true}})";
}

// By chunks of so many bytes.
std::string in_chunks(std::string_view body, size_t size) {
  std::string chunks;
  for (size_t at = 0; at < body.size(); at += size) {
    const std::string_view part = body.substr(at, size);
    std::array<char, 20> head{};
    std::snprintf(head.data(), head.size(), "%zx\r\n", part.size());
    chunks.append(head.data()).append(part).append("\r\n");
  }
  return chunks + "0\r\n\r\n";
}

class Client final : public Connection {
 public:
  using Connection::Connection;

 private:
  void step(Steps& steps) override {
    switch (steps.byte() % 8) {
      case 0:
      case 1: infer(steps); break;
      case 2: get(steps); break;
      case 3: body_of_the_fuzzer(steps); break;
      case 4: header_of_the_fuzzer(steps); break;
      case 5:
      case 6: cut(steps.byte()); break;
      default: send_any(steps); break;
    }
  }
  void finish() override {
    end();
    replies_.check(is_whole());
  }
  void on_received(std::string_view bytes) override { replies_.receive(bytes); }

  void expect(std::optional<std::string> outputs) {
    if (is_whole()) replies_.expect(std::move(outputs));
  }

  void infer(Steps& steps) {
    const uint8_t form = steps.byte();
    const uint8_t more = steps.byte();
    const bool is_json = (form & 1) != 0;
    const bool is_chunked = (form & 2) != 0;
    const bool is_packed = (form & 4) != 0;
    const bool awaits = (form & 8) != 0;
    const auto rows = static_cast<uint8_t>((form & 16) != 0 ? 200 : 1 + more % 8);
    const float value = server().next_value();
    std::string body;
    std::string headers;
    if (is_json) {
      const std::string number = std::to_string(value);
      std::string data = "\"data\":[" + number;
      for (int i = 1; i < 4 * rows; ++i) data.append(",").append(number);
      body = infer_json(rows, data + "]");
    } else {
      std::string tensor;
      for (uint8_t i = 0; i < rows; ++i) tensor += of_four(value);
      const std::string size = std::to_string(tensor.size());
      body = infer_json(rows, R"("parameters":{"binary_data_size":)" + size + "}");
      headers = "Inference-Header-Content-Length: " + std::to_string(body.size()) + "\r\n";
      body += tensor;
    }
    if (is_packed) {
      const bool is_gzip = more % 2 == 0;
      headers += std::string("Content-Encoding: ") + (is_gzip ? "gzip" : "deflate") + "\r\n";
      body = lumen::test::compress(
          body, is_gzip ? lumen::wire::ContentCoding::kGzip : lumen::wire::ContentCoding::kDeflate);
    }
    if (is_chunked) {
      headers += "Transfer-Encoding: chunked\r\n";
      body = in_chunks(body, 1 + more * 4);
    } else {
      headers += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    }
    if (awaits) headers += "Expect: 100-continue\r\n";
    send("POST /v2/models/plus_one/infer HTTP/1.1\r\nHost: test\r\n" + headers + "\r\n" + body);
    std::string outputs;
    for (uint8_t i = 0; i < rows; ++i) outputs += of_four(value + 1);
    expect(std::move(outputs));
  }

  void get(Steps& steps) {
    const std::string_view path = kPaths[steps.byte() % kPaths.size()];
    send("GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n\r\n");
    expect(std::nullopt);
  }

  // The message is whole, and its bytes are anything.
  void body_of_the_fuzzer(Steps& steps) {
    const std::string_view body = steps.bytes(steps.byte());
    send("POST /v2/models/plus_one/infer HTTP/1.1\r\nHost: test\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + std::string(body));
    expect(std::nullopt);
  }

  void header_of_the_fuzzer(Steps& steps) {
    const std::string_view line = steps.bytes(steps.byte());
    break_up();
    send("POST /v2/models/plus_one/infer HTTP/1.1\r\nHost: test\r\n" + std::string(line) +
         "\r\nContent-Length: 5\r\n\r\nabcde");
  }

  HttpReplies replies_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static LiveServer server;
  Steps steps(data, size);
  Client(server).live(steps);
  return 0;
}
