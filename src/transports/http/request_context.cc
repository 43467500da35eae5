// Creation and reuse of RequestContext. I/O thread only; one mmap at creation.
#include "transports/http/request_context.h"

#include "transports/http/http_transport.h"

#include <lumen/service/classification.h>
#include <lumen/service/documents.h>
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
  role = Role::kNone;
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

// The `number`-th of the reply: the tensor itself, its best classes, or its copy in a region.
Status RequestContext::describe_output(size_t number, wire::ReplyOutput& output) noexcept {
  const models::InferRequest& infer = call.infer;
  const models::ModelMetadata& metadata = infer.model->metadata();
  const size_t index = infer.outputs_wanted.empty() ? number : infer.outputs_wanted[number];
  const models::TensorSpec& spec = metadata.outputs[index];
  output.name = spec.name;
  output.tensor = infer.outputs[number];
  output.binary = infer_head.binary_data_output;
  if (infer_head.outputs.empty()) return {};
  const wire::InferOutput& wanted = infer_head.outputs[number];
  output.binary = wanted.binary;
  if (wanted.classes > 0) {
    const bool has_rows = service::has_rows(*infer.model);
    const Result<TensorView> classes = service::best_classes(spec.name, output.tensor, has_rows,
                                                             wanted.classes, spec.labels, memory);
    if (classes.ok()) output.tensor = *classes;
    return classes.status();
  }
  if (!wanted.shared.is_there()) return {};
  output.is_elsewhere = true;
  const std::span<std::byte> place = output_places[number];
  if (output.tensor.byte_size > place.size()) {
    return Status::error(Code::kInvalidArgument,
                         "output '%.128s' has %zu bytes, shared_memory_byte_size is %zu; register "
                         "and name a larger place",
                         spec.name.c_str(), output.tensor.byte_size, place.size());
  }
  if (output.tensor.byte_size > 0) {
    std::memcpy(place.data(), output.tensor.data, output.tensor.byte_size);
  }
  return {};
}

Status RequestContext::encode_outputs() noexcept {
  const models::InferRequest& infer = call.infer;
  const models::ModelMetadata& metadata = infer.model->metadata();
  const std::span<wire::ReplyOutput> outputs =
      memory.allocate_array<wire::ReplyOutput>(infer.outputs.size());
  if (outputs.size() != infer.outputs.size()) {
    return Status::error(Code::kTooLarge,
                         "the list of outputs does not fit a request's memory; raise "
                         "--max-body-bytes");
  }
  for (size_t i = 0; i < outputs.size(); ++i) LUMEN_RETURN_IF_ERROR(describe_output(i, outputs[i]));
  LUMEN_RETURN_IF_ERROR(call.check_regions());
  const wire::InferReply said{metadata.name, metadata.version, infer_head.id, outputs,
                              infer_head.non_finite};
  const Result<wire::EncodedReply> written = wire::encode_infer_reply(said, memory);
  if (!written.ok()) return written.status();
  encoded = *written;
  reply_outputs = outputs;
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
