// A GET that waits. Any thread; the heap; as fetch.h says. The reply ends by its length, by its
// last chunk or with the connection, which "Connection: close" asks for.
#include "client/fetch.h"

#include "client/waiting_socket.h"

#include <lumen/client/reply_head.h>

#include <lumen/base/clock.h>
#include <lumen/wire/http.h>

#include <string>
#include <utility>

namespace lumen::client {

namespace {

constexpr uint64_t kMaxReplyBytes = uint64_t{64} << 20;

Status failed(const Target& target, std::string_view path, const char* what) {
  return Status::error(Code::kUnavailable, "GET %.*s of %s: %s", static_cast<int>(path.size()),
                       path.data(), target.url.c_str(), what);
}

// Whether `received` holds the whole reply, or nothing more can come (`at_end`).
struct Parsed {
  enum class State : uint8_t { kNeedMore, kWhole, kBroken } state = State::kNeedMore;
  Reply reply;
  std::string_view reason;
};

Parsed parse_reply(std::string_view received, bool at_end) {
  Parsed parsed;
  const ReplyHeadResult head = parse_reply_head(received);
  if (head.state == HeadState::kBroken) return {Parsed::State::kBroken, {}, head.reason};
  if (head.state == HeadState::kNeedMore) return parsed;
  parsed.reply.status = head.head.status;
  const std::string_view body = received.substr(head.head.head_bytes);
  if (head.head.chunked) {
    parsed.reply.body.resize(body.size());
    wire::ChunkedDecoder decoder(kMaxReplyBytes);
    const auto step = decoder.decode(body, parsed.reply.body);
    if (step.state == wire::ChunkedDecoder::State::kRefused) {
      return {Parsed::State::kBroken, {}, step.refusal.reason};
    }
    parsed.reply.body.resize(step.produced);
    if (step.state == wire::ChunkedDecoder::State::kComplete) parsed.state = Parsed::State::kWhole;
  } else if (head.head.content_length) {
    if (*head.head.content_length > kMaxReplyBytes) {
      return {Parsed::State::kBroken, {}, "a reply of over 64 MiB"};
    }
    if (body.size() >= *head.head.content_length) parsed.state = Parsed::State::kWhole;
    parsed.reply.body = body.substr(0, *head.head.content_length);
  } else {
    parsed.reply.body = body;
    if (at_end) parsed.state = Parsed::State::kWhole;
  }
  return parsed;
}

}  // namespace

Result<Reply> fetch(const Target& target, std::string_view path, uint64_t timeout_ns) {
  auto socket = WaitingSocket::connect(target, now_ns() + timeout_ns);
  if (!socket.ok()) return failed(target, path, socket.status().c_message());
  const std::string request = "GET " + target.base_path + std::string(path) +
                              " HTTP/1.1\r\nHost: " + target.host + "\r\n" + target.head_lines +
                              "Connection: close\r\n\r\n";
  if (const Status sent = socket->send_all(request); !sent.ok()) {
    return failed(target, path, sent.c_message());
  }
  std::string received;
  for (;;) {
    char bytes[16 * 1024];
    const Result<size_t> count = socket->receive(bytes);
    if (!count.ok()) return failed(target, path, count.status().c_message());
    received.append(bytes, *count);
    Parsed parsed = parse_reply(received, *count == 0);
    if (parsed.state == Parsed::State::kWhole) return std::move(parsed.reply);
    if (parsed.state == Parsed::State::kBroken) {
      return failed(target, path, std::string(parsed.reason).c_str());
    }
    if (*count == 0) return failed(target, path, "the connection ended within the reply");
    if (received.size() > 2 * kMaxReplyBytes) return failed(target, path, "a reply without end");
  }
}

}  // namespace lumen::client
