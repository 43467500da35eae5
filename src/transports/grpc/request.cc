// The bytes of a call, in and out. See the header.
#include "transports/grpc/request.h"

#include "transports/grpc/grpc_transport.h"

#include <lumen/service/classification.h>
#include <lumen/service/documents.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace lumen::grpc {
namespace {

// Touched memory that a request keeps between calls.
constexpr size_t kKeepBytes = size_t{2} << 20;

}  // namespace

void Request::reset() noexcept {
  memory.reset(kKeepBytes);
  memory.use(RequestMemory::Kind::kArena);
  std::destroy_at(&call);
  ::new (static_cast<void*>(&call))
      service::Call{.owner = this, .scratch = &memory, .reply_memory = &memory};
  head = {};
  timeout.unlink();
  connection = nullptr;
  stream = 0;
  previous = next = nullptr;
  is_away = has_ended = is_answered = is_closed = false;
  method = Method::kUnknown;
  is_post = is_grpc = false;
  is_plain = true;
  timeout_us.reset();
  header_bytes = prefix_bytes = 0;
  message = nullptr;
  message_bytes = received_bytes = 0;
  encode_status = {};
  reply = {};
  piece = sent_of_piece = left_bytes = 0;
  status = 0;
}

Status Request::receive(std::string_view bytes, size_t most_bytes) noexcept {
  if (const size_t missing = std::min(prefix.size() - prefix_bytes, bytes.size()); missing > 0) {
    std::copy_n(bytes.begin(), missing, prefix.begin() + static_cast<ptrdiff_t>(prefix_bytes));
    prefix_bytes += missing;
    bytes.remove_prefix(missing);
    if (prefix_bytes < prefix.size()) return {};
    for (size_t i = 1; i < prefix.size(); ++i) {
      message_bytes = message_bytes << 8 | static_cast<uint8_t>(prefix[i]);
    }
    if (prefix[0] != 0) {
      return Status::error(Code::kUnsupported,
                           "compressed messages are not supported; send them as they are");
    }
    if (message_bytes > most_bytes) {
      return Status::error(Code::kResourceExhausted,
                           "message of %zu bytes is above the limit of %zu; send less or start the "
                           "server with a larger --max-body-bytes",
                           message_bytes, most_bytes);
    }
    message = static_cast<char*>(memory.allocate(std::max<size_t>(message_bytes, 1), kCacheLine));
    if (message == nullptr) return host.no_room();
  }
  if (bytes.size() > message_bytes - received_bytes) {
    return Status::error(Code::kInternal, "the call has more than one message; wanted one");
  }
  if (!bytes.empty()) std::memcpy(message + received_bytes, bytes.data(), bytes.size());
  received_bytes += bytes.size();
  return {};
}

Status Request::check_complete() const noexcept {
  if (prefix_bytes == prefix.size() && received_bytes == message_bytes) return {};
  return Status::error(Code::kInternal, "the call ends within its message: got %zu of %zu bytes",
                       received_bytes, message_bytes);
}

void Request::encode(service::Call& of_mine) noexcept {
  (void)of_mine;
  encode_status = encode_outputs();
}

void Request::on_returned(service::Call& of_mine) noexcept {
  (void)of_mine;
  host.post(*this);
}

Status Request::encode_outputs() noexcept {
  const models::InferRequest& infer = call.infer;
  const models::ModelMetadata& metadata = infer.model->metadata();
  const std::span<wire::ReplyOutput> outputs =
      memory.allocate_array<wire::ReplyOutput>(infer.outputs.size());
  if (outputs.size() != infer.outputs.size()) return host.no_room();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const size_t index = infer.outputs_wanted.empty() ? i : infer.outputs_wanted[i];
    const models::TensorSpec& spec = metadata.outputs[index];
    outputs[i] = {.name = spec.name, .tensor = infer.outputs[i], .binary = true};
    if (head.outputs.empty() || head.outputs[i].classes == 0) continue;
    const Result<TensorView> classes =
        service::best_classes(spec.name, outputs[i].tensor, service::has_rows(*infer.model),
                              head.outputs[i].classes, spec.labels, memory);
    if (!classes.ok()) return classes.status();
    outputs[i].tensor = *classes;
  }
  const Result<wire::GrpcMessage> encoded =
      wire::encode_grpc_reply({.model_name = metadata.name,
                               .model_version = metadata.version,
                               .id = head.id,
                               .outputs = outputs},
                              memory);
  if (!encoded.ok()) return encoded.status();
  reply = *encoded;
  return {};
}

}  // namespace lumen::grpc
