// CallStream: one call of a method: a stream of HTTP/2, its head, the messages that come on it, and
// the replies that leave in the order in which they were made. A unary call is a stream of one
// message and one reply.
//
//   bytes ─► backlog, if no request is free ─► receiving ─► CallHandler ─► (engine) ─► replies
//
// Threads: its I/O thread. Memory: its own; messages and replies are their requests'. Errors: its
// status, which its client gets at its end.
#pragma once

#include "transports/grpc/backlog.h"
#include "transports/grpc/method.h"

#include <lumen/base/result.h>
#include <lumen/base/traceparent.h>
#include <lumen/net/loop.h>
#include <lumen/net/timeout_list.h>
#include <lumen/transports/common/api_keys.h>
#include <lumen/wire/content_coding.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace lumen::grpc {

class GrpcConnection;
struct Request;

struct CallStream {
  CallStream() noexcept { timeout.owner = stall.owner = this; }
  CallStream(const CallStream&) = delete;
  CallStream& operator=(const CallStream&) = delete;

  // For another call; it has no request any more.
  void reset() noexcept;

  // --- its requests: from a message's first byte to its reply's last ------------------------------
  void add(Request& request) noexcept;
  void remove(Request& request) noexcept;
  // The reply is the last of those that are to leave.
  void push_reply(Request& request) noexcept;
  void pop_reply() noexcept;

  void stop_timeouts() noexcept {
    timeout.unlink();
    stall.unlink();
  }

  // A message or a reply of it is under way, beside the one that waits for room.
  [[nodiscard]] bool is_busy() const noexcept {
    return first_reply != nullptr || unanswered > (blocked != nullptr ? 1 : 0);
  }
  // Nothing of its client's is to be done any more, and nothing is under way.
  [[nodiscard]] bool is_through() const noexcept {
    return receiving == nullptr && unanswered == 0 && backlog.is_empty();
  }

  GrpcConnection* connection = nullptr;
  int32_t number = 0;
  net::TimeoutEntry timeout;       // while a message comes, or the end of a call that was answered
  net::TimeoutEntry stall;         // while a reply leaves
  CallStream* previous = nullptr;  // of its connection, or (next alone) free
  CallStream* next = nullptr;

  // --- its head ---------------------------------------------------------------------------------
  bool is_begun = false;  // its head is whole
  Method method = Method::kUnknown;
  bool is_post = false;
  bool is_grpc = false;
  bool ends_by_errors = false;  // metadata triton_grpc_error: of a stream's messages
  transports::Role role = transports::Role::kNone;
  bool has_key = false;
  // Of its messages that are compressed; nullopt: one that is not known.
  std::optional<wire::ContentCoding> coding = wire::ContentCoding::kIdentity;
  std::optional<uint64_t> timeout_us;
  Traceparent traceparent{};
  uint64_t began_ns = 0;
  size_t header_bytes = 0;
  bool is_http = false;         // a request of the REST surface, and no call
  net::Stream* http = nullptr;  // its connection of HTTP/1.1, as long as that is open

  // --- its messages -----------------------------------------------------------------------------
  Request* requests = nullptr;   // all of them
  Request* receiving = nullptr;  // the one whose bytes come
  Request* blocked = nullptr;    // a message of a stream that its model has no room for yet
  size_t messages = 0;
  size_t unanswered = 0;   // messages that are whole, and have no reply yet
  bool has_ended = false;  // all of the client's bytes are there, maybe in the backlog
  Backlog backlog;
  bool is_waiting = false;  // for a free request, or for room
  CallStream* next_waiting = nullptr;

  // --- its replies ------------------------------------------------------------------------------
  Request* first_reply = nullptr;
  Request* last_reply = nullptr;
  CallStream* next_leaving = nullptr;  // of its connection, if
  bool is_leaving = false;             // the kernel may read its REST reply still
  bool has_head = false;               // the reply's headers were handed to the session
  bool is_deferred = false;            // the session waits for replies
  bool is_over = false;                // its status follows the replies that are there
  bool is_closed = false;              // the session has forgotten it; a request may be away still
  uint8_t told_health = 0;             // of Watch; 0: nothing yet
  Status status;
  static constexpr size_t kMostMessageBytes = 1024;  // of grpc-message, percent-encoded
  std::array<char, 4> status_text{};
  std::array<char, kMostMessageBytes> status_message{};
};

}  // namespace lumen::grpc
