// A client of gRPC over HTTP/2, as small as tests need it: headers as literals, windows of 1 GiB
// that are never made larger, one call at a time.
// Threads: one test. Memory: the heap. Errors: a status of -1.
#pragma once

#include "support/http_client.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::test {

inline std::string h2_frame(uint8_t type, uint8_t flags, uint32_t stream,
                            std::string_view payload) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame.push_back(static_cast<char>(payload.size() >> shift));
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  for (const int shift : {24, 16, 8, 0}) frame.push_back(static_cast<char>(stream >> shift));
  return frame.append(payload);
}

inline std::string h2_headers(const std::vector<std::pair<std::string, std::string>>& headers) {
  std::string block;
  for (const auto& [name, value] : headers) {
    block.push_back(0);  // a literal that nobody keeps; names and values are below 127 bytes
    block.append(1, static_cast<char>(name.size())).append(name);
    block.append(1, static_cast<char>(value.size())).append(value);
  }
  return block;
}

inline std::string grpc_message(std::string_view message) {
  std::string bytes(1, '\0');
  for (const int shift : {24, 16, 8, 0})
    bytes.push_back(static_cast<char>(message.size() >> shift));
  return bytes.append(message);
}

inline constexpr std::string_view kH2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

class GrpcClient {
 public:
  struct Reply {
    bool has_ended = false;
    std::string data;     // the message, with its prefix
    std::string trailer;  // the last header block, as it came
  };

  explicit GrpcClient(server::HttpClient connection) : connection_(std::move(connection)) {
    // SETTINGS_INITIAL_WINDOW_SIZE, and a WINDOW_UPDATE of the connection: 1 GiB.
    const std::string window("\x40\0\0\0", 4);
    (void)connection_.send(std::string(kH2Preface) +
                           h2_frame(4, 0, 0, std::string("\0\x04", 2) + window) +
                           h2_frame(8, 0, 0, window));
  }
  // `method`: of inference.GRPCInferenceService.
  [[nodiscard]] std::string call(std::string_view method, std::string_view message,
                                 size_t most_of_frame = 16384) {
    std::string frames = begin(method);
    const std::string body = grpc_message(message);
    for (size_t at = 0; at < body.size(); at += most_of_frame) {
      const bool is_last = at + most_of_frame >= body.size();
      frames += h2_frame(0, is_last ? 1 : 0, stream_, body.substr(at, most_of_frame));
    }
    return frames;
  }
  // A request of REST; its body is below 16 KiB.
  [[nodiscard]] std::string rest(
      std::string_view path, std::string_view body,
      std::vector<std::pair<std::string, std::string>> more_headers = {}) {
    stream_ += 2;
    std::vector<std::pair<std::string, std::string>> headers = {
        {":method", body.empty() ? "GET" : "POST"},
        {":scheme", "http"},
        {":authority", "test"},
        {":path", std::string(path)}};
    headers.insert(headers.end(), more_headers.begin(), more_headers.end());
    const uint8_t flags = body.empty() ? 5 : 4;
    std::string frames = h2_frame(1, flags, stream_, h2_headers(headers));
    if (!body.empty()) frames += h2_frame(0, 1, stream_, body);
    return frames;
  }
  // A stream of messages; each is below 16 KiB.
  [[nodiscard]] std::string begin(std::string_view method) {
    stream_ += 2;
    const std::string head =
        h2_headers({{":method", "POST"},
                    {":scheme", "http"},
                    {":authority", "test"},
                    {":path", "/inference.GRPCInferenceService/" + std::string(method)},
                    {"content-type", "application/grpc"},
                    {"te", "trailers"}});
    return h2_frame(1, 4, stream_, head);
  }
  [[nodiscard]] std::string next(std::string_view message) {
    return h2_frame(0, 0, stream_, grpc_message(message));
  }
  bool send(std::string_view frames) { return connection_.send(frames); }
  // The reply of the last call.
  Reply read() {
    Reply reply;
    while (!reply.has_ended && read_frame(reply)) {
    }
    return reply;
  }
  // The next reply of a stream, each of which is a frame.
  Reply read_message() {
    Reply reply;
    while (!reply.has_ended && reply.data.empty() && read_frame(reply)) {
    }
    return reply;
  }

 private:
  bool read_frame(Reply& reply) {
    std::string head;
    std::string payload;
    if (!connection_.read_bytes(9, head)) return false;
    const auto byte = [&](size_t at) { return static_cast<uint8_t>(head[at]); };
    const size_t length = size_t{byte(0)} << 16 | size_t{byte(1)} << 8 | byte(2);
    if (!connection_.read_bytes(length, payload)) return false;
    const uint8_t type = byte(3);
    const uint8_t flags = byte(4);
    if (type == 0) {
      reply.data += payload;
    } else if (type == 1) {
      reply.trailer = payload;
    } else if (type == 4 && (flags & 1) == 0) {
      (void)connection_.send(h2_frame(4, 1, 0, {}));
    } else if (type == 7) {
      return false;
    }
    reply.has_ended = (type == 0 || type == 1) && (flags & 1) != 0;
    return true;
  }

  server::HttpClient connection_;
  uint32_t stream_ = static_cast<uint32_t>(-1);
};

inline std::string proto_varint(size_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

// A field of a protobuf message whose number is below 16.
inline std::string proto_field(uint32_t number, std::string_view bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + proto_varint(bytes.size()) +
         std::string(bytes);
}

// A ModelInferRequest with one FP32 input of [rows, bytes / 4 / rows].
inline std::string grpc_infer(std::string_view model, std::string_view input,
                              std::string_view bytes, size_t rows = 1) {
  const std::string shape = proto_varint(rows) + proto_varint(bytes.size() / 4 / rows);
  return proto_field(1, model) +
         proto_field(5, proto_field(1, input) + proto_field(2, "FP32") + proto_field(3, shape)) +
         proto_field(7, bytes);
}

}  // namespace lumen::test
