// RequestContext: all memory of one request: receive buffer, tensors, parsed head, reply. Taken from
// an I/O thread's pool when a connection's first byte arrives, given back when its reply is out.
// Threads: its I/O thread, but for the time between submit and completion: then the worker.
// Memory: one mapping at creation, virtual until touched. Errors: create() returns why.
#pragma once

#include "serve/route.h"

#include <lumen/engine/engine.h>
#include <lumen/engine/model_repository.h>
#include <lumen/memory/request_memory.h>
#include <lumen/service/call.h>
#include <lumen/service/memory_need.h>
#include <lumen/wire/http.h>
#include <lumen/wire/oip.h>

#include <sys/uio.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace lumen::serve {

class IoThread;
class Connection;

class RequestContext final : public service::CallOwner {
 public:
  // `budget`, which outlives it, bounds its memory. Errors: why there is no region; kTooLarge where the
  // budget has no room for its base.
  [[nodiscard]] static Result<std::unique_ptr<RequestContext>> create(size_t max_body_bytes,
                                                                      const RegionOptions& regions,
                                                                      MemoryBudget& budget);

  // Forgets the request, keeps unread bytes of the receive buffer (the next request's). What its
  // memory took is returned.
  RequestMemory::Usage reset() noexcept;

  // How the request is kept from here on and how it will go to the engine, once its model is known. What
  // is not for a model lies in the region.
  void use(const engine::Submitter::Types& types) noexcept;

  // --- receive buffer: bytes [begin, end) are unread --------------------------------------------
  [[nodiscard]] std::string_view unread() const noexcept {
    return {receive_buffer_.data() + begin, end - begin};
  }
  [[nodiscard]] std::span<char> free_space() const noexcept { return receive_buffer_.subspan(end); }
  void move_unread_to_front() noexcept;
  [[nodiscard]] std::span<char> receive_buffer() const noexcept { return receive_buffer_; }

  size_t begin = 0;
  size_t end = 0;

  // --- the request ------------------------------------------------------------------------------
  RequestMemory memory;
  wire::HttpHead head;  // views into the receive buffer
  Route route;
  wire::InferHead infer_head;
  service::Call call;
  service::Places body_places;  // where the body's remaining bytes go
  iovec body_segment{};         // of a body that is collected whole
  size_t body_unread = 0;       // bytes of the body not yet taken from the socket or the buffer
  std::span<char> body;         // a body that is collected whole (JSON, chunked): filled part
  std::optional<wire::ChunkedDecoder> chunked;
  service::MemoryNeed need;          // of its call, once the head is there
  bool has_room = false;             // it counts among the calls in memory
  bool has_latency_budget = false;   // as the engine was when the request began
  size_t received_direct_bytes = 0;  // received straight into tensors, without a copy

  // --- the reply --------------------------------------------------------------------------------
  Status reply_status;        // why encoding failed; otherwise ok
  int reply_code = 0;         // of HTTP, once it leaves
  std::string_view document;  // of a request to the control thread or the metrics thread
  wire::EncodedReply reply;
  std::span<const wire::ReplyOutput> reply_outputs;
  std::array<char, wire::kMaxResponseHeadBytes> response_head;
  std::array<char, wire::kMaxErrorBodyBytes> error_body;
  std::array<iovec, limits::kMaxTensors + 2> send_segments;

  // --- of its call, by whoever has run the model ------------------------------------------------
  void encode(service::Call& call) noexcept override;
  void on_returned(service::Call& call) noexcept override;

  // --- whose it is ------------------------------------------------------------------------------
  IoThread* io_thread = nullptr;
  Connection* connection = nullptr;
  RequestContext* next_free = nullptr;

 private:
  RequestContext() = default;
  std::span<char> receive_buffer_;  // in the region, whichever kind of memory the rest comes from
};

}  // namespace lumen::serve
