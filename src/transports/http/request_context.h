// RequestContext: all memory of one request: receive buffer, tensors, parsed head, reply. Taken
// from an I/O thread's pool when a connection's first byte arrives, given back when its reply is
// out.
// Threads: its I/O thread, but for the time between submit and completion: then the worker.
// Memory: one mapping at creation, virtual until touched. Errors: create() returns why.
#pragma once

#include "transports/http/head_reader.h"
#include "transports/http/reply_writer.h"
#include "transports/http/request_body.h"
#include "transports/http/route.h"

#include <lumen/memory/request_memory.h>
#include <lumen/models/model_repository.h>
#include <lumen/net/loop.h>
#include <lumen/service/call.h>
#include <lumen/service/compression.h>
#include <lumen/service/job.h>
#include <lumen/service/memory_need.h>
#include <lumen/transports/common/api_keys.h>
#include <lumen/transports/http/options.h>
#include <lumen/wire/oip.h>

#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace lumen::http {

class HttpConnection;
class HttpTransport;

class RequestContext final : public service::CallOwner,
                             public service::JobOwner,
                             public service::CompressionOwner {
 public:
  // `budget`, which outlives it, bounds its memory. Errors: why there is no region; kTooLarge where
  // the budget has no room for its base.
  [[nodiscard]] static Result<std::unique_ptr<RequestContext>> create(HttpTransport& host,
                                                                      const Options& options,
                                                                      MemoryBudget& budget);

  // Forgets the request, keeps unread bytes of the receive buffer (the next request's). Returns the
  // use of its memory.
  RequestMemory::Usage reset() noexcept;

  // --- the request ------------------------------------------------------------------------------
  RequestMemory memory;
  ReceiveBuffer buffer;
  HeadReader head_reader;
  RequestBody body{buffer};
  Route route;
  wire::InferHead infer_head;
  service::Call call;
  service::Job job;                        // of a request to the control plane
  service::MemoryNeed need;                // of its call, once the head is there
  const models::Model* room_of = nullptr;  // it counts among the calls in memory of that model
  size_t room_bytes = 0;                   // with so many bytes
  [[nodiscard]] bool has_room() const noexcept { return room_of != nullptr; }
  net::Stream* stream = nullptr;                    // its connection's, of an infer request
  bool is_local = false;                            // by the unix socket
  transports::Role role = transports::Role::kNone;  // of its key; kNone: none was asked for
  bool close_after = false;                         // the connection ends with its reply
  bool is_away = false;    // the engine, a step or the control plane has it
  bool gives_way = false;  // it comes free, for a connection that waits for a context
  [[nodiscard]] const wire::HttpHead& head() const noexcept { return head_reader.head(); }

  // --- the reply --------------------------------------------------------------------------------
  std::span<std::span<std::byte>> output_places;  // in regions, by wanted output; may be empty
  Status encode_status;                           // why the outputs can't be said; otherwise ok
  wire::EncodedReply encoded;
  std::span<const wire::ReplyOutput> reply_outputs;
  service::CompressionJob compression;
  bool is_compressing = false;  // its call has come back, and its reply is away
  ReplyWriter reply;

  // --- of its call, by the thread that has run the model -----------------------------------------
  void encode(service::Call& call) noexcept override;
  void on_returned(service::Call& call) noexcept override;
  void on_done(service::Job& job) noexcept override;
  void on_compressed(service::CompressionJob& job) noexcept override;

  // --- whose it is ------------------------------------------------------------------------------
  HttpTransport* host = nullptr;
  HttpConnection* connection = nullptr;
  RequestContext* next_free = nullptr;

 private:
  RequestContext() = default;
  [[nodiscard]] Status encode_outputs() noexcept;
};

}  // namespace lumen::http
