// See the header.
#include "transports/grpc/call_handler.h"

#include "transports/grpc/grpc_transport.h"

#include <lumen/base/cache_line.h>
#include <lumen/base/clock.h>
#include <lumen/service/binder.h>
#include <lumen/service/documents.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace lumen::grpc {

bool CallHandler::is_ready() const noexcept {
  // relaxed: nothing else is told by it
  return !host_.draining() && !host_.services().is_leaving.load(std::memory_order_relaxed);
}

Status CallHandler::on_call(Request& request) noexcept {
  switch (request.method) {
    case Method::kServerLive: return reply_number(request, 1);
    case Method::kServerReady: return reply_number(request, is_ready() ? 1 : 0);
    case Method::kModelReady: return model_ready(request);
    case Method::kServerMetadata:
      return reply_text(request, host_.services().documents.grpc_server_metadata());
    case Method::kModelMetadata: return model_metadata(request);
    case Method::kHealthCheck: return health(request);
    case Method::kModelInfer: return infer(request);
    case Method::kUnknown: break;
  }
  return Status::error(Code::kUnsupported,
                       "this method is not there; the server has ServerLive, ServerReady, "
                       "ModelReady, ServerMetadata, ModelMetadata and ModelInfer of "
                       "inference.GRPCInferenceService, and Check of grpc.health.v1.Health");
}

Status CallHandler::reply_number(Request& request, uint8_t value) noexcept {
  constexpr char kTag = 1 << 3;  // a varint
  const std::array text = {kTag, static_cast<char>(value)};
  // 0 is left out.
  return reply_text(request, {text.data(), value == 0 ? 0 : text.size()});
}

Status CallHandler::reply_text(Request& request, std::string_view text) noexcept {
  const std::span<char> room =
      request.memory.allocate_array<char>(wire::kGrpcPrefixBytes + text.size());
  const std::span<std::string_view> pieces = request.memory.allocate_array<std::string_view>(1);
  if (room.empty() || pieces.empty()) return host_.no_room();
  wire::write_grpc_prefix(room.data(), text.size());
  text.copy(room.data() + wire::kGrpcPrefixBytes, text.size());
  pieces[0] = {room.data(), room.size()};
  request.reply = {.pieces = pieces, .bytes = room.size()};
  request.connection->answer(request);
  return {};
}

Status CallHandler::model_ready(Request& request) noexcept {
  const Result<wire::GrpcModelName> name = wire::parse_grpc_model_name(request.text());
  if (!name.ok()) return name.status();
  const service::CatalogModel* const entry =
      host_.thread().intake.catalog().find(name->name, name->version);
  if (entry == nullptr) return service::model_not_found(name->name, name->version);
  return reply_number(request, entry->model->state() == models::ModelState::kReady ? 1 : 0);
}

Status CallHandler::model_metadata(Request& request) noexcept {
  const Result<wire::GrpcModelName> name = wire::parse_grpc_model_name(request.text());
  if (!name.ok()) return name.status();
  const service::CatalogModel* const entry =
      host_.thread().intake.catalog().find(name->name, name->version);
  if (entry == nullptr) return service::model_not_found(name->name, name->version);
  if (entry->model->state() != models::ModelState::kReady) {
    return service::model_unavailable(*entry->model);
  }
  return reply_text(request, entry->documents->grpc_metadata);
}

// The service of a name is the server's own, or empty: the server.
Status CallHandler::health(Request& request) noexcept {
  constexpr uint8_t kServing = 1;
  constexpr uint8_t kNotServing = 2;
  const Result<wire::GrpcModelName> asked = wire::parse_grpc_model_name(request.text());
  if (!asked.ok()) return asked.status();
  if (!asked->name.empty() && asked->name != "inference.GRPCInferenceService") {
    return Status::error(Code::kNotFound, "service '%.*s' is not known",
                         static_cast<int>(std::min<size_t>(asked->name.size(), 100)),
                         asked->name.data());
  }
  return reply_number(request, is_ready() ? kServing : kNotServing);
}

Status CallHandler::infer(Request& request) noexcept {
  if (host_.draining()) return service::shutting_down();
  Result<wire::GrpcInferRequest> parsed = wire::parse_grpc_infer(request.text(), request.memory);
  if (!parsed.ok()) return parsed.status();
  request.head = parsed->head;
  const transports::ThreadServices& thread = host_.thread();
  switch (thread.intake.admit({.model = parsed->model,
                               .version = parsed->version,
                               .outside_ns = thread.loop.last_turn_ns()},
                              request.call, request.memory, host_)) {
    case service::Admission::kAdmitted: break;
    case service::Admission::kNoRoom: return host_.no_room();
    case service::Admission::kRefused: return request.call.infer.status;
  }
  LUMEN_RETURN_IF_ERROR(bind(request));
  request.call.infer.times.parsed_ns = now_ns();
  return host_.submit(request) ? Status() : request.call.infer.status;
}

// A tensor of the message lies at any address; one that no load of its elements takes is copied.
Status CallHandler::bind(Request& request) noexcept {
  service::Call& call = request.call;
  const wire::InferHead& head = request.head;
  const std::optional<uint64_t> deadline = request.timeout_us;
  call.set_timeout(!head.timeout_us ? deadline
                   : deadline       ? std::min(*deadline, *head.timeout_us)
                                    : head.timeout_us);
  call.infer.priority = head.priority;
  call.cache_wishes = {.is_off = head.no_cache || head.is_of_sequence,
                       .has_shared_input = false,
                       .ttl_ms = head.ttl_ms,
                       .parameters = head.parameters};
  const auto is_shared = [](const auto& one) { return one.shared.is_there(); };
  if (std::ranges::any_of(head.inputs, is_shared) || std::ranges::any_of(head.outputs, is_shared)) {
    return Status::error(Code::kUnsupported,
                         "shared memory is not supported over gRPC yet; use HTTP, or send the "
                         "tensors in the request");
  }
  service::Binder binder(call, *call.infer.model);
  for (const wire::InferInput& input : head.inputs) {
    TensorView tensor = input.tensor;
    const size_t alignment = std::max<size_t>(element_size(tensor.type), 1);
    if (reinterpret_cast<uintptr_t>(tensor.data) % alignment != 0) {
      auto* const copy =
          static_cast<std::byte*>(request.memory.allocate(tensor.byte_size, kCacheLine));
      if (copy == nullptr) return host_.no_room();
      std::memcpy(copy, tensor.data, tensor.byte_size);
      tensor.data = copy;
    }
    LUMEN_RETURN_IF_ERROR(binder.input(input.name, tensor, service::InputBytes::kPresent));
  }
  LUMEN_RETURN_IF_ERROR(binder.inputs_named());
  for (const wire::InferOutput& output : head.outputs) {
    LUMEN_RETURN_IF_ERROR(binder.output(output.name));
  }
  return service::inputs_arrived(call);
}

Status CallHandler::on_returned(Request& request) noexcept {
  if (!request.call.infer.status.ok()) return request.call.infer.status;
  if (!request.encode_status.ok()) return request.encode_status;
  request.connection->answer(request);
  const models::InferRequest& infer = request.call.infer;
  host_.thread().counters.add_time(infer.model->index(), "success",
                                   now_ns() - infer.times.received_ns);
  return {};
}

}  // namespace lumen::grpc
