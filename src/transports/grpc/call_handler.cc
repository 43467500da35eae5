// See the header.
#include "transports/grpc/call_handler.h"

#include "transports/grpc/grpc_transport.h"

#include <lumen/base/clock.h>
#include <lumen/service/documents.h>
#include <lumen/service/shared_tensors.h>

#include <algorithm>
#include <array>

namespace lumen::grpc {

namespace {

// grpc.health.v1.HealthCheckResponse.ServingStatus.
constexpr uint8_t kServing = 1;
constexpr uint8_t kNotServing = 2;
constexpr uint8_t kServiceUnknown = 3;

// The parameter by which clients of streams ask for a mark on the last reply to each request. Here
// each request has one.
bool asks_for_final(const wire::InferHead& head) noexcept {
  return std::ranges::any_of(head.parameters, [](const wire::InferParameter& one) {
    return one.of.empty() && one.name == "triton_enable_empty_final_response" &&
           one.value == "true";
  });
}

bool is_service(std::string_view name) noexcept {
  return name.empty() || name == "inference.GRPCInferenceService";
}

}  // namespace

// Probes have no key.
Status CallHandler::check_key(const CallStream& call, bool is_local) const noexcept {
  const bool is_open = call.method == Method::kServerLive || call.method == Method::kServerReady ||
                       call.method == Method::kHealthCheck || call.method == Method::kHealthWatch;
  if (is_local || is_open || host_.services().keys.now() == nullptr) return {};
  if (call.role != transports::Role::kNone) return {};
  return Status::error(Code::kUnauthenticated,
                       call.has_key ? "the key of the metadata authorization is not one of this "
                                      "server's; wanted: Bearer KEY"
                                    : "a key is needed: send the metadata authorization: Bearer "
                                      "KEY");
}

Status CallHandler::unknown_method() noexcept {
  return Status::error(Code::kUnsupported,
                       "this method is not there; the server has inference.GRPCInferenceService "
                       "and grpc.health.v1.Health");
}

bool CallHandler::is_ready() const noexcept {
  return !host_.draining() && host_.services().readiness.is_ready(host_.thread().intake.catalog());
}

Status CallHandler::on_call(Request& request) noexcept {
  switch (request.stream->method) {
    case Method::kServerLive: return reply_number(request, 1);
    case Method::kServerReady: return reply_number(request, is_ready() ? 1 : 0);
    case Method::kModelReady: return model_ready(request);
    case Method::kServerMetadata:
      return reply_text(request, host_.services().documents.grpc_server_metadata());
    case Method::kModelMetadata: return model_metadata(request);
    case Method::kHealthCheck: return check_health(request);
    case Method::kHealthWatch: return watch_health(request);
    case Method::kModelInfer:
    case Method::kModelStreamInfer: return infer(request);
    case Method::kReflection:
    case Method::kReflectionAlpha: return reflect(request);
    case Method::kCudaRegionStatus:
    case Method::kCudaRegionRegister:
    case Method::kCudaRegionUnregister: return cuda_regions(request);
    default: break;
  }
  const ControlMethod* const method = find_control_method(request.stream->method);
  return method == nullptr ? unknown_method() : ask(request, *method);
}

// It may lock, allocate and take seconds, so nothing else is to wait for it.
Status CallHandler::ask(Request& request, const ControlMethod& method) noexcept {
  const CallStream& call = *request.stream;
  const transports::Client client = call.connection->client_of(call);
  LUMEN_RETURN_IF_ERROR(transports::check_audience(method.audience, client,
                                                   host_.services().options.access,
                                                   kPaths[static_cast<size_t>(call.method)]));
  service::Job& job = request.job;
  if (const std::optional<PeerCredentials> peer = client.loop.peer_credentials(client.stream)) {
    job.by = {.pid = peer->pid, .uid = peer->uid};
  }
  job.topic = method.topic;
  job.text = request.text();
  job.form = &method.form;
  const bool loads = job.topic == service::Job::Topic::kLoadModel ||
                     job.topic == service::Job::Topic::kUnloadModel;
  host_.ask(request, loads ? host_.services().loader : host_.services().control);
  return {};
}

Status CallHandler::reflect(Request& request) noexcept {
  const Result<std::string_view> said = host_.reflection().answer(request.text(), request.memory);
  return said.ok() ? reply_text(request, *said) : said.status();
}

// As a server without a GPU: clients ask for these whether they use them or not.
Status CallHandler::cuda_regions(Request& request) noexcept {
  if (request.stream->method == Method::kCudaRegionRegister) {
    return Status::error(Code::kUnsupported,
                         "CUDA shared memory is not supported; register system shared memory, or "
                         "send the tensors in the request");
  }
  const Result<wire::GrpcModelName> asked = wire::parse_grpc_model_name(request.text());
  if (!asked.ok()) return asked.status();
  const bool is_one = request.stream->method == Method::kCudaRegionStatus && !asked->name.empty();
  return is_one ? service::region_not_found(asked->name) : reply_text(request, {});
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
  request.stream->connection->answer(request);
  return {};
}

Status CallHandler::model_ready(Request& request) noexcept {
  const Result<wire::GrpcModelName> name = wire::parse_grpc_model_name(request.text());
  if (!name.ok()) return name.status();
  const service::CatalogModel* const entry =
      host_.thread().intake.catalog().find(name->name, name->version);
  // Clients ask that of models which are not there, too.
  const bool is_there = entry != nullptr && entry->model->state() == models::ModelState::kReady;
  return reply_number(request, is_there ? 1 : 0);
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
Status CallHandler::check_health(Request& request) noexcept {
  const Result<wire::GrpcModelName> asked = wire::parse_grpc_model_name(request.text());
  if (!asked.ok()) return asked.status();
  if (!is_service(asked->name)) {
    return Status::error(Code::kNotFound, "service '%.*s' is not known",
                         static_cast<int>(std::min<size_t>(asked->name.size(), 100)),
                         asked->name.data());
  }
  return reply_number(request, is_ready() ? kServing : kNotServing);
}

// A service that is not known may come to be there, for all that its client knows, so the call goes
// on.
Status CallHandler::watch_health(Request& request) noexcept {
  const Result<wire::GrpcModelName> asked = wire::parse_grpc_model_name(request.text());
  if (!asked.ok()) return asked.status();
  if (is_service(asked->name)) return tell_health(request);
  request.stream->told_health = kServiceUnknown;
  return reply_number(request, kServiceUnknown);
}

bool CallHandler::has_other_health(const CallStream& call) const noexcept {
  return call.told_health != kServiceUnknown &&
         call.told_health != (is_ready() ? kServing : kNotServing);
}

Status CallHandler::tell_health(Request& request) noexcept {
  request.stream->told_health = is_ready() ? kServing : kNotServing;
  return reply_number(request, request.stream->told_health);
}

Status CallHandler::infer(Request& request) noexcept {
  if (host_.draining()) return service::shutting_down();
  Result<wire::GrpcInferRequest> parsed = wire::parse_grpc_infer(request.text(), request.memory);
  if (!parsed.ok()) return parsed.status();
  request.head = parsed->head;
  request.model = parsed->model;
  request.version = parsed->version;
  request.wants_final = asks_for_final(request.head);
  return admit(request);
}

// A stream's messages wait for their model's share, and the stream with them: its client can't know
// how much there is. A unary call is refused, as its client may try again.
Status CallHandler::admit(Request& request) noexcept {
  const transports::ThreadServices& thread = host_.thread();
  switch (thread.intake.admit({.model = request.model,
                               .version = request.version,
                               .outside_ns = thread.loop.last_turn_ns()},
                              request.call, request.memory, host_)) {
    case service::Admission::kAdmitted: break;
    case service::Admission::kNoRoom:
      if (!takes_many(request.stream->method) || host_.is_short()) return host_.no_room();
      request.stream->blocked = &request;
      return {};
    case service::Admission::kRefused: return request.call.infer.status;
  }
  LUMEN_RETURN_IF_ERROR(bind(request));
  request.call.infer.times.parsed_ns = now_ns();
  return host_.submit(request) ? Status() : request.call.infer.status;
}

// The deadline of a call counts from its first byte, that of a message from the message's.
std::optional<uint64_t> CallHandler::timeout_us(const Request& request) noexcept {
  const std::optional<uint64_t>& of_call = request.stream->timeout_us;
  const std::optional<uint64_t>& of_message = request.head.timeout_us;
  if (!of_call) return of_message;
  const uint64_t gone_us = (request.call.infer.times.received_ns - request.stream->began_ns) / 1000;
  const uint64_t left_us = *of_call > gone_us ? *of_call - gone_us : 1;
  return of_message && *of_message > 0 ? std::min(left_us, *of_message) : left_us;
}

// A tensor of the message lies at any address; one that no load of its elements takes is copied.
Status CallHandler::bind(Request& request) noexcept {
  service::Call& call = request.call;
  service::Intake& intake = host_.thread().intake;
  const wire::InferHead& head = request.head;
  call.set_timeout(timeout_us(request));
  call.infer.priority = head.priority;
  call.sequence = head.sequence;
  call.cache_wishes = {.is_off = head.no_cache || head.sequence.is_said(),
                       .has_shared_input = false,
                       .ttl_ms = head.ttl_ms,
                       .parameters = head.parameters};
  uid_t user = 0;
  if (service::uses_shared_memory(head)) {
    const Result<uid_t> known = transports::region_user(
        request.stream->connection->client_of(*request.stream), host_.services().options.access);
    if (!known.ok()) return known.status();
    user = *known;
  }
  service::Binder binder(call, *call.infer.model);
  for (const wire::InferInput& input : head.inputs) {
    if (input.shared.is_there()) {
      LUMEN_RETURN_IF_ERROR(service::bind_shared_input(intake, call, binder, input, user));
      continue;
    }
    TensorView tensor = input.tensor;
    if (!service::align(tensor, request.memory)) return host_.no_room();
    LUMEN_RETURN_IF_ERROR(binder.input(input.name, tensor, service::InputBytes::kPresent));
  }
  LUMEN_RETURN_IF_ERROR(binder.inputs_named());
  for (const wire::InferOutput& output : head.outputs) {
    LUMEN_RETURN_IF_ERROR(binder.output(output.name));
  }
  const auto places = service::take_output_places(intake, call, head.outputs, user);
  if (!places.ok()) return places.status();
  request.output_places = *places;
  return service::inputs_arrived(call);
}

Status CallHandler::on_returned(Request& request) noexcept {
  if (request.is_job) {
    return request.job.status.ok() ? reply_text(request, request.job.document) : request.job.status;
  }
  if (!request.call.infer.status.ok()) return request.call.infer.status;
  if (!request.encode_status.ok()) return request.encode_status;
  request.stream->connection->answer(request);
  const models::InferRequest& infer = request.call.infer;
  host_.thread().counters.add_time(infer.model->index(), "success",
                                   now_ns() - infer.times.received_ns);
  return {};
}

}  // namespace lumen::grpc
