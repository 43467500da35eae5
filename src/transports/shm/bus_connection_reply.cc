// A connection's answers. I/O thread only; allocates nothing but from the request's memory.
#include "transports/shm/bus_transport.h"

#include <lumen/base/check.h>
#include <lumen/base/limits.h>
#include <lumen/service/documents.h>
#include <lumen/service/failure_reason.h>
#include <lumen/wire/status_map.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace lumen::shm {

using wire::BusVerb;

uint64_t longest_reply(const models::ModelMetadata& model) noexcept {
  uint64_t bytes = sizeof(wire::BusReplyHead) + sizeof(uint16_t) + model.version.size();
  for (const models::TensorSpec& output : model.outputs) {
    bytes += sizeof(wire::BusTensorHead) + limits::kMaxRank * sizeof(int64_t) + sizeof(uint16_t) +
             output.name.size();
  }
  return std::max(bus::payload_bytes(bytes), kRefusalBytes);
}

// Beside the room reserved for replies to come.
bool BusConnection::has_reply_room(uint64_t bytes) noexcept {
  return bus_.publisher->try_reserve(reserved_bytes_ + bytes).outcome == bus::Outcome::kOk;
}

void BusConnection::write_reply(uint64_t id, const wire::BusReply& reply) noexcept {
  const std::optional<size_t> bytes = frame_bytes(reply);
  LUMEN_CHECK(bytes.has_value());
  const bus::Publisher::Place place = bus_.publisher->try_reserve(*bytes);
  if (!place) return;  // its room was reserved: the client is gone, or breaks the protocol
  wire::write_bus_reply(reply, place.bytes);
  bus_.publisher->commit(*bytes, static_cast<uint32_t>(BusVerb::kReply), id);
  has_replies_ = true;
  using telemetry::ServerCounter;
  host_.thread().counters.add(reply.status < 400   ? ServerCounter("responses_2xx")
                              : reply.status < 500 ? ServerCounter("responses_4xx")
                                                   : ServerCounter("responses_5xx"));
}

void BusConnection::flush() noexcept {
  if (std::exchange(has_replies_, false)) bus_.publisher->flush();
}

int BusConnection::refuse(uint64_t id, const Status& status) noexcept {
  const int number = wire::is_overload(status.code())
                         ? static_cast<int>(host_.services().options.overload_status)
                         : wire::http_status(status.code());
  write_reply(id, {.status = static_cast<uint16_t>(number),
                   .version = {},
                   .outputs = {},
                   .text = status.message()});
  return number;
}

void BusConnection::refuse(Request& request, const Status& refused,
                           const service::ReplyMoment& out) noexcept {
  const models::InferRequest& infer = request.call.infer;
  Status status = refused;
  if (refused.code() == Code::kTooLarge && request.reply_place.was_refused()) {
    status = Status::error(Code::kTooLarge,
                           "outputs of model '%s' need %zu bytes and more, but the request has "
                           "named room for %zu; name more",
                           infer.model->metadata().name.c_str(), request.reply_place.wanted(),
                           request.reply_place.room());
  } else if (refused.code() == Code::kTooLarge && request.memory.was_refused()) {
    status = host_.no_room();
  }
  const int number = refuse(request.id, status);
  if (infer.model == nullptr) return;
  host_.thread().counters.add_time(infer.model->index(), "failure",
                                   out.now_ns - infer.times.received_ns);
  host_.thread().counters.add(infer.model->index(), service::failure_reason(status.code()));
  host_.thread().recorder.record(request.call, telemetry::TransportKind::kBus, number, {}, out);
}

void BusConnection::on_returned(Request& request, const service::ReplyMoment& out) noexcept {
  if (request.previous != nullptr) request.previous->next = request.next;
  if (request.next != nullptr) request.next->previous = request.previous;
  if (requests_ == &request) requests_ = request.next;
  request.previous = request.next = nullptr;
  host_.ids().remove(request);
  reserved_bytes_ -= request.reserved_bytes;
  if (!is_closed_) {
    const Status& status = request.call.infer.status;
    if (status.ok()) {
      answer_outputs(request, out);
    } else {
      refuse(request, status, out);
    }
  }
  release(request);
}

void BusConnection::release(Request& request) noexcept {
  host_.give_back_room(request);
  host_.thread().intake.leave(request.call);
  host_.release(request);
}

void BusConnection::answer_outputs(Request& request, const service::ReplyMoment& out) noexcept {
  const models::InferRequest& infer = request.call.infer;
  const models::ModelMetadata& metadata = infer.model->metadata();
  const std::span outputs = request.memory.allocate_array<wire::BusTensor>(infer.outputs.size());
  if (outputs.size() != infer.outputs.size()) return refuse(request, host_.no_room(), out);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorView& output = infer.outputs[i];
    const std::byte* data = output.data;
    // A step's outputs lie in memory of its own.
    if (output.byte_size > 0 && !request.reply_place.holds(data)) {
      void* place = request.reply_place.allocate(output.byte_size, bus::kPayloadAlign);
      if (place == nullptr) return refuse(request, Status::error(Code::kTooLarge, "no room"), out);
      std::memcpy(place, data, output.byte_size);
      data = static_cast<std::byte*>(place);
    }
    const size_t index = infer.outputs_wanted.empty() ? i : infer.outputs_wanted[i];
    outputs[i] = {
        .name = metadata.outputs[index].name,
        .type = output.type,
        .shape = output.shape,
        .offset = output.byte_size == 0 ? 0 : static_cast<uint64_t>(data - bus_.area.data()),
        .bytes = output.byte_size};
  }
  write_reply(request.id,
              {.status = 200, .version = metadata.version, .outputs = outputs, .text = {}});
  const transports::ThreadServices& thread = host_.thread();
  thread.counters.add_time(infer.model->index(), "success", out.now_ns - infer.times.received_ns);
  thread.recorder.record(request.call, telemetry::TransportKind::kBus, 200, {}, out);
}

// ok: it is answered and released.
Status BusConnection::answer_document(Request& request, BusVerb verb,
                                      const wire::BusRequest& head) noexcept {
  const service::CatalogModel* entry = nullptr;
  const service::CatalogSnapshot& catalog = host_.thread().intake.catalog();
  const bool is_of_all = verb == BusVerb::kServerMetadata || verb == BusVerb::kServerReady ||
                         (verb == BusVerb::kStatistics && head.model.empty());
  if (!is_of_all) {
    entry = catalog.find(head.model, head.version);
    if (entry == nullptr) return service::model_not_found(head.model, head.version);
    if (entry->model->state() != models::ModelState::kReady) {
      return service::model_unavailable(*entry->model);
    }
  }
  std::string_view text;
  switch (verb) {
    case BusVerb::kServerMetadata: text = host_.services().documents.server_metadata(); break;
    case BusVerb::kServerReady:
      if (host_.draining()) return service::shutting_down();
      if (const auto& readiness = host_.services().readiness; !readiness.is_ready(catalog)) {
        return readiness.reason(catalog);
      }
      text = R"({"ready":true})";
      break;
    case BusVerb::kModelMetadata: text = entry->documents->metadata; break;
    case BusVerb::kModelReady: text = entry->documents->ready; break;
    case BusVerb::kStatistics: {
      const size_t models = entry != nullptr ? 1 : catalog.models.size();
      text = service::Documents::write_statistics(
          request.memory.allocate_array<char>(service::Documents::statistics_bytes(models)),
          catalog, entry != nullptr ? entry->model.get() : nullptr);
      break;
    }
    default:
      return Status::error(Code::kUnsupported, "frames of type %u ask nothing that is known",
                           static_cast<uint32_t>(verb));
  }
  const wire::BusReply reply{.status = 200, .version = {}, .outputs = {}, .text = text};
  if (const size_t bytes = frame_bytes(reply).value(); !has_reply_room(bytes)) {
    return Status::error(
        Code::kResourceExhausted,
        "a document of %zu bytes finds no room in the ring of replies, %llu bytes in all", bytes,
        static_cast<unsigned long long>(bus_.publisher->geometry().capacity));
  }
  write_reply(request.id, reply);
  release(request);
  return {};
}

}  // namespace lumen::shm
