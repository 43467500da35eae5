// Requests that wait. Any thread; the heap; as fetch.h says. The reply ends by its length, by its
// last chunk or with the connection, which "Connection: close" asks for.
#include <lumen/client/fetch.h>

#include "client/waiting_socket.h"

#include <lumen/client/reply_head.h>

#include <lumen/base/clock.h>
#include <lumen/wire/http.h>

#include <string>
#include <utility>

namespace lumen::client {

namespace {

constexpr uint64_t kMaxReplyBytes = uint64_t{64} << 20;

// A request, as messages name it.
struct Asked {
  const char* method;
  const Target& target;
  std::string_view path;
};

Status failed(const Asked& asked, const char* reason) {
  return Status::error(Code::kUnavailable, "%s %.*s of %s: %s", asked.method,
                       static_cast<int>(asked.path.size()), asked.path.data(),
                       asked.target.url.c_str(), reason);
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
  parsed.reply.retry_after_s = head.head.retry_after_s;
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

// `lines`: of the head beside the usual ones, each with its end.
Result<Reply> exchange(const Asked& asked, const std::string& lines, std::string_view body,
                       uint64_t timeout_ns) {
  const Target& target = asked.target;
  auto socket = WaitingSocket::connect(target, now_ns() + timeout_ns);
  if (!socket.ok()) return failed(asked, socket.status().c_message());
  const std::string head = std::string(asked.method) + " " + target.base_path +
                           std::string(asked.path) + " HTTP/1.1\r\nHost: " + target.host + "\r\n" +
                           target.head_lines + lines + "Connection: close\r\n\r\n";
  for (const std::string_view part : {std::string_view(head), body}) {
    if (const Status sent = socket->send_all(part); !sent.ok()) {
      return failed(asked, sent.c_message());
    }
  }
  std::string received;
  for (;;) {
    char bytes[16 * 1024];
    const Result<size_t> count = socket->receive(bytes);
    if (!count.ok()) return failed(asked, count.status().c_message());
    received.append(bytes, *count);
    Parsed parsed = parse_reply(received, *count == 0);
    if (parsed.state == Parsed::State::kWhole) return std::move(parsed.reply);
    if (parsed.state == Parsed::State::kBroken) {
      return failed(asked, std::string(parsed.reason).c_str());
    }
    if (*count == 0) return failed(asked, "the connection ended within the reply");
    if (received.size() > 2 * kMaxReplyBytes) return failed(asked, "a reply without end");
  }
}

}  // namespace

Result<Reply> fetch(const Target& target, std::string_view path, uint64_t timeout_ns) {
  return exchange({"GET", target, path}, "", "", timeout_ns);
}

Result<Reply> post(const Target& target, std::string_view path, std::string_view content_type,
                   std::string_view body, uint64_t timeout_ns) {
  const std::string lines = "Content-Type: " + std::string(content_type) +
                            "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  return exchange({"POST", target, path}, lines, body, timeout_ns);
}

}  // namespace lumen::client
