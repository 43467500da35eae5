// Creation and reuse of RequestContext. I/O thread only; one mmap at creation.
#include "transports/http/request_context.h"

#include "transports/http/http_transport.h"

#include <lumen/transports/http/memory_limits.h>

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
        memory.status().message().data());
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
  encode_status = {};
  encoded = {};
  reply_outputs = {};
  return usage;
}

void RequestContext::encode(service::Call& of_mine) noexcept {
  const models::InferRequest& infer = of_mine.infer;
  const models::ModelMetadata& metadata = infer.model->metadata();
  const std::span<wire::ReplyOutput> outputs =
      memory.allocate_array<wire::ReplyOutput>(infer.outputs.size());
  if (outputs.size() != infer.outputs.size()) {
    encode_status = Status::error(Code::kTooLarge,
                                  "the list of outputs does not fit a request's memory; raise "
                                  "--max-body-bytes");
    return;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const size_t index = infer.outputs_wanted.empty() ? i : infer.outputs_wanted[i];
    outputs[i].name = metadata.outputs[index].name;
    outputs[i].tensor = infer.outputs[i];
    outputs[i].binary =
        infer_head.outputs.empty() ? infer_head.binary_data_output : infer_head.outputs[i].binary;
  }
  const wire::InferReply said{metadata.name, metadata.version, infer_head.id, outputs,
                              infer_head.non_finite};
  const Result<wire::EncodedReply> written = wire::encode_infer_reply(said, memory);
  if (!written.ok()) {
    encode_status = written.status();
    return;
  }
  encoded = *written;
  reply_outputs = outputs;
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

}  // namespace lumen::http
