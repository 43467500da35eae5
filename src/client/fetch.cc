// A GET that waits. Any thread; the heap; as fetch.h says. The reply ends by its length, by its
// last chunk or with the connection, which "Connection: close" asks for.
#include "client/fetch.h"

#include <lumen/client/reply_head.h>

#include <lumen/base/clock.h>
#include <lumen/wire/http.h>

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

namespace lumen::client {

namespace {

constexpr uint64_t kMaxReplyBytes = uint64_t{64} << 20;

Status failed(const Target& target, std::string_view path, const char* what) {
  return Status::error(Code::kUnavailable, "GET %.*s of %s: %s", static_cast<int>(path.size()),
                       path.data(), target.url.c_str(), what);
}

// False when the deadline passed first.
bool wait_for(int fd, short events, uint64_t deadline_ns) {
  for (;;) {
    const uint64_t now = now_ns();
    if (now >= deadline_ns) return false;
    pollfd entry{fd, events, 0};
    const int count = poll(&entry, 1, static_cast<int>((deadline_ns - now) / 1'000'000u) + 1);
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return false;
  }
}

int connection_error(int fd) {
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

// Empty: sent.
std::string send_all(int fd, std::string_view bytes, uint64_t deadline_ns) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!wait_for(fd, POLLOUT, deadline_ns)) return "no time left to send";
    } else if (errno != EINTR) {
      return strerror(errno);
    }
  }
  return {};
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
  const uint64_t deadline_ns = now_ns() + timeout_ns;
  Connecting connecting = start_connecting(target, timeout_ns);
  if (!connecting.fd.valid()) return failed(target, path, strerror(connecting.error));
  const int fd = connecting.fd.get();
  if (!connecting.connected) {
    if (!wait_for(fd, POLLOUT, deadline_ns)) return failed(target, path, "no connection in time");
    if (const int error = connection_error(fd); error != 0) {
      return failed(target, path, strerror(error));
    }
  }
  const std::string request = "GET " + target.base_path + std::string(path) +
                              " HTTP/1.1\r\nHost: " + target.host + "\r\n" + target.head_lines +
                              "Connection: close\r\n\r\n";
  if (const std::string why = send_all(fd, request, deadline_ns); !why.empty()) {
    return failed(target, path, why.c_str());
  }
  std::string received;
  for (;;) {
    char bytes[16 * 1024];
    const ssize_t count = recv(fd, bytes, sizeof(bytes), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      if (wait_for(fd, POLLIN, deadline_ns)) continue;
      return failed(target, path, "no reply in time");
    }
    if (count < 0) return failed(target, path, strerror(errno));
    received.append(bytes, static_cast<size_t>(count));
    Parsed parsed = parse_reply(received, count == 0);
    if (parsed.state == Parsed::State::kWhole) return std::move(parsed.reply);
    if (parsed.state == Parsed::State::kBroken) {
      return failed(target, path, std::string(parsed.reason).c_str());
    }
    if (count == 0) return failed(target, path, "the connection ended within the reply");
    if (received.size() > 2 * kMaxReplyBytes) return failed(target, path, "a reply without end");
  }
}

}  // namespace lumen::client
