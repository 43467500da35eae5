// Taking requests, and the fate of the connection; replies: connection_reply.cc. See the header.
#include "transports/shm/bus_connection.h"

#include "transports/shm/bus_transport.h"

#include <lumen/base/clock.h>
#include <lumen/base/limits.h>
#include <lumen/service/binder.h>
#include <lumen/service/documents.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace lumen::shm {
namespace {

using wire::BusVerb;

enum WatchIndex : uint8_t { kRequestBell, kReplyBell, kSocket, kProcess };

int width(std::string_view text) noexcept {
  return static_cast<int>(std::min(text.size(), limits::kMaxNameBytes));
}

// Of one connection in one look, after which the others have their turn. A number of frames alone
// bounds nothing: a cancel is one look into a table, and a request may have thousands of tensors.
constexpr uint64_t kMostNsPerLook = 200'000;
// The clock is asked once for so many, some 20 small requests.
constexpr size_t kBytesPerClock = 4096;
constexpr size_t kFrameHeadBytes = 64;
// Kernels write outputs where they lie, and ReplyPlace aligns within the room.
constexpr size_t kRoomAlignment = 64;

bool is_within(std::span<const std::byte> area, uint64_t offset, uint64_t bytes) noexcept {
  return offset <= area.size() && bytes <= area.size() - offset;
}

Status outside_area(const char* what, std::string_view name, uint64_t offset, uint64_t bytes,
                    size_t area) noexcept {
  return Status::error(
      Code::kInvalidArgument,
      "%s '%.*s': %llu bytes at offset %llu are not within the %zu bytes of the area", what,
      width(name), name.data(), static_cast<unsigned long long>(bytes),
      static_cast<unsigned long long>(offset), area);
}

}  // namespace

BusConnection::BusConnection(BusTransport& host, bus::Connection bus)
    : host_(host), bus_(std::move(bus)) {
  known_.name.reserve(limits::kMaxNameBytes);
  known_.version.reserve(limits::kMaxNameBytes);
  watches_[kRequestBell] = {bus_.subscriber->bell().fd(), this};
  watches_[kReplyBell] = {bus_.publisher->bell().fd(), this};
  watches_[kSocket] = {bus_.peer->connection_poll().fd, this};
  watches_[kProcess] = {bus_.peer->process_poll().fd, this};
}

BusConnection::~BusConnection() { close(); }

Status BusConnection::watch() {
  for (net::Watch& one : watches_) {
    if (one.fd < 0) continue;  // no pidfd: the socket alone tells of its end
    if (Status status = host_.thread().loop.add(one); !status.ok()) {
      one.fd = -1;
      return status;
    }
  }
  return {};
}

void BusConnection::on_ready(net::Watch& watch, bool hung_up) noexcept {
  bus::Bell* bell = &watch == &watches_[kRequestBell] ? &bus_.subscriber->bell()
                    : &watch == &watches_[kReplyBell] ? &bus_.publisher->bell()
                                                      : nullptr;
  if (bell != nullptr) bell->drain();
  // The requests are taken in this turn.
  if (bell != nullptr && !hung_up && !bell->has_hung_up()) return;
  // A client that closes a bell alone could not be woken by any more.
  if (bus_.peer->look() == bus::Outcome::kOk) bus_.peer->quarantine();
  close();
}

bool BusConnection::has_ended() noexcept {
  if (!is_closed_ && bus_.peer->state() != bus::Outcome::kOk) close();
  return is_closed_;
}

void BusConnection::close() noexcept {
  if (std::exchange(is_closed_, true)) return;
  for (net::Watch& one : watches_) {
    if (one.fd >= 0) host_.thread().loop.remove(one);
  }
  for (Request* one = requests_; one != nullptr; one = one->next) {
    host_.thread().dispatcher.cancel(one->call);
  }
  bus_.peer->close(bus::Goodbye::kClosed);
}

void BusConnection::before_sleep() noexcept {
  if (is_closed_) return;
  bus_.subscriber->announce_sleep();
  // By a look of its own: the last one may have ended with its number of requests, the last of
  // which took the room. None is lost after this, since a turn that takes a request does not sleep.
  announced_room_ = !has_reply_room(kRefusalBytes);
  if (announced_room_) bus_.publisher->announce_sleep();
  is_announced_ = true;
}

void BusConnection::after_sleep() noexcept {
  if (!std::exchange(is_announced_, false)) return;
  bus_.subscriber->end_sleep();
  if (std::exchange(announced_room_, false)) bus_.publisher->end_sleep();
}

bool BusConnection::has_requests() noexcept {
  if (is_closed_) return false;
  if (waits_for_room_ && !has_reply_room(kRefusalBytes)) return false;
  return bus_.subscriber->look_now();
}

size_t BusConnection::take_requests(uint64_t now_ns, size_t at_most) noexcept {
  size_t taken = 0;
  size_t bytes = 0;  // since the last look at the clock
  uint64_t began_ns = 0;
  while (taken < at_most && !is_closed_) {
    if (bytes >= kBytesPerClock) {
      bytes = 0;
      const uint64_t clock_ns = lumen::now_ns();
      if (began_ns == 0) began_ns = clock_ns;
      if (clock_ns - began_ns > kMostNsPerLook) break;
    }
    // Any request can be answered, with a refusal at least.
    waits_for_room_ = !has_reply_room(kRefusalBytes);
    if (waits_for_room_) break;
    const std::optional<bus::Frame> frame = bus_.subscriber->try_take();
    if (!frame) break;
    ++taken;
    bytes += kFrameHeadBytes + frame->data.size();
    handle(*frame, now_ns);
  }
  // The heads were copied, so all places are free again, for any end of the requests.
  if (taken > 0) bus_.subscriber->release();
  return taken;
}

void BusConnection::handle(const bus::Frame& frame, uint64_t now_ns) noexcept {
  if (frame.type_id == static_cast<uint32_t>(BusVerb::kCancel)) return cancel(frame.id);
  host_.thread().counters.add("requests");
  host_.thread().counters.add("bus_requests");
  if (frame.data.size() > wire::kMaxBusRequestBytes) {
    (void)refuse(frame.id,
                 Status::error(Code::kTooLarge,
                               "a request of %zu bytes is above the limit of %zu; tensors belong "
                               "into the area",
                               frame.data.size(), wire::kMaxBusRequestBytes));
    return;
  }
  Request* request = host_.acquire();
  if (request == nullptr) {
    (void)refuse(frame.id, host_.no_room());
    return;
  }
  request->connection = this;
  request->id = frame.id;
  request->call.infer.times.received_ns = now_ns;
  const Status status = handle_parsed(*request, frame);
  if (status.ok()) return;
  refuse(*request, status, service::ReplyMoment::now());
  release(*request);
}

// Its words are copied first: the client can still change them. ok: the request is in the engine,
// or answered and released.
Status BusConnection::handle_parsed(Request& request, const bus::Frame& frame) noexcept {
  const auto verb = static_cast<BusVerb>(frame.type_id);
  wire::BusRequest head;
  if (verb != BusVerb::kServerMetadata && verb != BusVerb::kServerReady) {
    const std::span copy = request.memory.allocate_array<std::byte>(frame.data.size());
    if (copy.size() != frame.data.size()) return host_.no_room();
    std::memcpy(copy.data(), frame.data.data(), copy.size());
    Result<wire::BusRequest> parsed = wire::parse_bus_request(copy, request.memory);
    if (!parsed.ok()) return parsed.status();
    head = *parsed;
  }
  return verb == BusVerb::kInfer ? submit(request, head) : answer_document(request, verb, head);
}

const service::CatalogModel* BusConnection::find(const wire::BusRequest& head) noexcept {
  if (known_.entry != nullptr && known_.name == head.model && known_.version == head.version) {
    return known_.entry;
  }
  const service::CatalogModel* entry =
      host_.thread().intake.catalog().find(head.model, head.version);
  if (entry == nullptr || head.version.size() > limits::kMaxNameBytes) return entry;
  known_.entry = entry;
  known_.name = head.model;
  known_.version = head.version;
  known_.reply_bytes = longest_reply(entry->model->metadata());
  return entry;
}

Status BusConnection::submit(Request& request, const wire::BusRequest& head) noexcept {
  if (host_.draining()) return service::shutting_down();
  const service::CatalogModel* entry = find(head);
  if (entry == nullptr) return service::model_not_found(head.model, head.version);
  const transports::ThreadServices& thread = host_.thread();
  models::InferRequest& infer = request.call.infer;
  switch (thread.intake.admit(*entry, {.outside_ns = thread.loop.last_turn_ns()}, request.call,
                              request.memory, host_)) {
    case service::Admission::kAdmitted: break;
    case service::Admission::kNoRoom: return host_.no_room();
    case service::Admission::kRefused: return infer.status;
  }
  LUMEN_RETURN_IF_ERROR(bind(request, head));
  if (!has_reply_room(known_.reply_bytes)) {
    return Status::error(Code::kResourceExhausted,
                         "the ring of replies has no room for another; take replies, and send "
                         "again");
  }
  infer.times.parsed_ns = infer.times.received_ns;  // one look at the clock for all of a turn
  if (!thread.dispatcher.submit(request.call)) return infer.status;
  request.reserved_bytes = known_.reply_bytes;
  reserved_bytes_ += request.reserved_bytes;
  request.next = requests_;
  if (requests_ != nullptr) requests_->previous = &request;
  requests_ = &request;
  host_.ids().add(request);
  host_.went_away();
  return {};
}

Status BusConnection::bind(Request& request, const wire::BusRequest& head) noexcept {
  const std::span<std::byte> area = bus_.area;
  if (!is_within(area, head.reply_offset, head.reply_room)) {
    return outside_area("room for outputs of model", head.model, head.reply_offset, head.reply_room,
                        area.size());
  }
  if (head.reply_offset % kRoomAlignment != 0 && head.reply_room > 0) {
    return Status::error(
        Code::kInvalidArgument,
        "room for outputs of model '%.*s' begins at offset %llu of the area; wanted "
        "a multiple of %zu, since outputs are written there by the model",
        static_cast<int>(head.model.size()), head.model.data(),
        static_cast<unsigned long long>(head.reply_offset), kRoomAlignment);
  }
  request.reply_place = ReplyPlace(area.subspan(head.reply_offset, head.reply_room));
  request.call.set_timeout(head.timeout_us);
  request.call.infer.priority = head.priority;
  request.call.sequence = head.sequence;
  request.call.cache_wishes.is_off = head.no_cache || head.sequence.is_said();
  request.call.cache_wishes.ttl_ms = head.ttl_ms;
  service::Binder binder(request.call, *request.call.infer.model);
  const size_t most = host_.services().options.max_body_bytes;
  size_t bytes = 0;
  for (const wire::BusTensor& input : head.inputs) {
    if (!is_within(area, input.offset, input.bytes)) {
      return outside_area("input", input.name, input.offset, input.bytes, area.size());
    }
    bytes += input.bytes;  // each is at most the area
    if (bytes > most) {
      return Status::error(Code::kTooLarge,
                           "inputs of %zu bytes are above the limit of %zu; send less or start "
                           "the server with a larger --max-body-bytes",
                           bytes, most);
    }
    LUMEN_RETURN_IF_ERROR(binder.input(input.name,
                                       {.type = input.type,
                                        .shape = input.shape,
                                        .data = area.data() + input.offset,
                                        .byte_size = input.bytes},
                                       service::InputBytes::kShared));
  }
  LUMEN_RETURN_IF_ERROR(binder.inputs_named());
  for (const std::string_view output : head.outputs) {
    LUMEN_RETURN_IF_ERROR(binder.output(output));
  }
  return service::inputs_arrived(request.call);
}

void BusConnection::cancel(uint64_t id) noexcept {
  host_.ids().for_each(*this, id,
                       [this](Request& one) { host_.thread().dispatcher.cancel(one.call); });
}

}  // namespace lumen::shm
