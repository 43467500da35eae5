// Creation and reuse of RequestContext. I/O thread only; one mmap at creation.
#include "transports/http/request_context.h"

#include "transports/http/http_transport.h"

#include <lumen/service/reply_outputs.h>
#include <lumen/transports/http/memory_limits.h>

#include <cstring>
#include <new>
#include <type_traits>

namespace lumen::http {
namespace {

// Touched memory that a context keeps between requests; more goes back to the kernel. 2 MiB spare
// image models the page faults of each request.
constexpr size_t kArenaKeepBytes = 2 * 1024 * 1024;

}  // namespace

Result<std::unique_ptr<RequestContext>> RequestContext::create(HttpTransport& host,
                                                               const Options& options,
                                                               MemoryBudget& budget) {
  Result<RequestMemory> memory =
      RequestMemory::create(most_request_bytes(options.max_body_bytes), options.regions);
  if (!memory.ok()) {
    return Status::error(
        memory.status().code(),
        "%.200s: the memory of a request; ulimit -v, vm.overcommit_memory=2 or vm.max_map_count "
        "bounds this process: raise it, or lower max_active_requests or max_body_bytes",
        memory.status().c_message());
  }
  std::unique_ptr<RequestContext> context(new RequestContext);  // alloc: at start
  context->host = &host;
  context->memory = std::move(*memory);
  auto* buffer = static_cast<char*>(context->memory.allocate(kReceiveBytes, kCacheLine));
  context->buffer = ReceiveBuffer({buffer, limits::kReceiveBufferBytes});
  context->memory.keep_what_is_there();
  if (!context->memory.charge_to(budget, kContextBytes - kReceiveBytes)) {
    return Status::error(Code::kTooLarge,
                         "max_memory_bytes: the %zu bytes of an I/O thread have no room for the "
                         "receive buffers and prefaulted regions of all its requests; raise it, or "
                         "lower max_active_requests or region_prefault_bytes",
                         budget.total_bytes());
  }
  (void)context->reset();
  return context;
}

RequestMemory::Usage RequestContext::reset() noexcept {
  host->thread().intake.leave(call);
  const RequestMemory::Usage usage = memory.reset(kArenaKeepBytes);
  memory.use(RequestMemory::Kind::kArena);
  close_after = false;
  if (buffer.unread().empty()) buffer.clear();
  head_reader = {};
  static_assert(std::is_trivially_destructible_v<RequestBody>);
  std::construct_at(&body, buffer);
  route = {};
  infer_head = {};
  // Made anew in their places: assigned, each would be made beside it first.
  std::destroy_at(&call);
  ::new (static_cast<void*>(&call))
      service::Call{.owner = this, .scratch = &memory, .reply_memory = &memory};
  std::destroy_at(&job);
  ::new (static_cast<void*>(&job)) service::Job{.owner = this, .memory = &memory};
  need = {};
  output_places = {};
  stream = nullptr;
  is_local = false;
  role = transports::Role::kNone;
  encode_status = {};
  encoded = {};
  reply_outputs = {};
  compression = {};
  is_compressing = false;
  return usage;
}

void RequestContext::encode(service::Call& of_mine) noexcept {
  (void)of_mine;
  encode_status = encode_outputs();
}

Status RequestContext::encode_outputs() noexcept {
  const models::ModelMetadata& metadata = call.infer.model->metadata();
  const auto outputs = service::reply_outputs(call, infer_head, output_places, memory);
  if (!outputs.ok()) return outputs.status();
  const wire::InferReply said{metadata.name, metadata.version, infer_head.id, *outputs,
                              infer_head.non_finite};
  const Result<wire::EncodedReply> written = wire::encode_infer_reply(said, memory);
  if (!written.ok()) return written.status();
  encoded = *written;
  reply_outputs = *outputs;
  return {};
}

void RequestContext::on_returned(service::Call& of_mine) noexcept {
  (void)of_mine;
  host->post(*this);
}

void RequestContext::on_done(service::Job& of_mine) noexcept {
  (void)of_mine;
  host->post(*this);
  host->wake();
}

void RequestContext::on_compressed(service::CompressionJob& of_mine) noexcept {
  (void)of_mine;
  host->post(*this);
  host->wake();
}

}  // namespace lumen::http
