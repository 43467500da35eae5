// Accepting, calls that come back, drain. See the header.
#include "transports/shm/bus_transport.h"

#include <lumen/base/check.h>
#include <lumen/base/clock.h>

#include <algorithm>
#include <bit>
#include <new>
#include <type_traits>
#include <utility>

namespace lumen::shm {
namespace {

// The memory for lists and copies of one request beside the bytes of its inputs.
constexpr size_t kListBytes = size_t{1} << 20;
// Of all requests of a thread; each keeps a page.
constexpr size_t kBudgetBytes = size_t{64} << 20;
constexpr size_t kKeepBytes = size_t{64} << 10;
// Requests that a look takes from one client, so that others come in between.
constexpr size_t kRequestsPerLook = 256;
// Looks at the rings between two looks at descriptors, while the loop spins: some times the cost of
// the system call, since a request that comes during it waits for its end.
constexpr int kLooksAPoll = 32;

}  // namespace

Result<std::unique_ptr<transports::Transport>> make_transport(
    const Services& services, const transports::ThreadServices& thread) {
  auto host = std::make_unique<BusTransport>(services, thread);
  LUMEN_RETURN_IF_ERROR(host->create());
  return std::unique_ptr<transports::Transport>(std::move(host));
}

BusTransport::BusTransport(const Services& services, const transports::ThreadServices& thread)
    : services_(services),
      thread_(thread),
      listener_watch_{services.listener.fd(), this},
      budget_(kBudgetBytes + services.options.max_active_requests * kPageBytes),
      no_room_(Status::error(Code::kNoMemory,
                             "no memory for this request: max_active_requests, or the memory for "
                             "copies of integer and BYTES inputs, is used up by others; try "
                             "again")),
      snapshot_(&thread.intake.catalog()),
      shares_(services.options.max_active_requests),
      returned_(std::bit_ceil(std::max<size_t>(services.options.max_active_requests, 2))),
      ids_(services.options.max_active_requests) {}

BusTransport::~BusTransport() {
  if (listener_watch_.fd >= 0) thread_.loop.remove(listener_watch_);
}

Status BusTransport::create() {
  for (size_t i = 0; i < services_.options.max_active_requests; ++i) {
    auto request = std::make_unique<Request>(*this);
    Result<RequestMemory> memory =
        RequestMemory::create(services_.options.max_body_bytes + kListBytes);
    if (!memory.ok()) return memory.status();
    request->memory = std::move(*memory);
    LUMEN_CHECK(request->memory.charge_to(budget_, kPageBytes));
    request->next = std::exchange(free_, request.get());
    requests_.push_back(std::move(request));
  }
  return thread_.loop.add(listener_watch_);
}

// One a turn, so that I/O threads that share the listener share its connections.
void BusTransport::on_ready(net::Watch& watch, bool hung_up) noexcept {
  (void)watch, (void)hung_up;
  bus::Listener::Accepted accepted = services_.listener.accept(0);
  if (accepted.outcome == bus::Outcome::kOk) accept(std::move(*accepted.connection));
}

void BusTransport::accept(bus::Connection bus) {
  auto connection = std::make_unique<BusConnection>(*this, std::move(bus));
  if (!connection->watch().ok()) {
    thread_.counters.add("connections_refused");
    return;
  }
  thread_.counters.add("connections_accepted");
  thread_.counters.add("connections_open");
  thread_.counters.add("bus_connections_open");
  connections_.push_back(std::move(connection));
}

size_t BusTransport::take_requests() noexcept {
  if (connections_.empty()) return 0;
  refresh_models();
  const uint64_t now = now_ns();
  // Where this thread runs models for longer than requests come, these wait in the ring, which has
  // room for them. One of each connection is taken in any case: it may be for a worker, or is
  // refused with the reason.
  const size_t share = thread_.intake.waiting_room() / connections_.size();
  size_t taken = 0;
  for (const auto& connection : connections_) {
    taken += connection->take_requests(now, std::clamp<size_t>(share / 2, 1, kRequestsPerLook));
    connection->flush();
  }
  return taken;
}

// Each snapshot is seen here: one that replaces it is only seen after another turn.
void BusTransport::refresh_models() noexcept {
  const service::CatalogSnapshot* now = &thread_.intake.catalog();
  if (std::exchange(snapshot_, now) == now) return;
  for (const auto& connection : connections_) connection->forget_models();
}

size_t BusTransport::take_returned() noexcept {
  size_t done = 0;
  service::ReplyMoment out{};
  for (Request* request = nullptr; returned_.try_pop(request); ++done) {
    if (!thread_.dispatcher.take_back(request->call)) continue;
    --away_;
    if (out.now_ns == 0) out = service::ReplyMoment::now();
    request->connection->on_returned(*request, out);
  }
  if (done > 0) {
    for (const auto& connection : connections_) connection->flush();
  }
  return done;
}

bool BusTransport::poll_memory() noexcept {
  if (connections_.empty()) return false;
  for (int look = 0; look < kLooksAPoll; ++look) {
    for (const auto& connection : connections_) {
      if (connection->has_requests()) return true;
    }
    cpu_pause();
  }
  return false;
}

void BusTransport::before_sleep() noexcept {
  for (const auto& connection : connections_) connection->before_sleep();
}

void BusTransport::after_sleep() noexcept {
  for (const auto& connection : connections_) connection->after_sleep();
}

// No request of the bus is late by the clock: the engine looks at deadlines.
void BusTransport::end_turn(uint64_t now_ns) noexcept {
  (void)now_ns;
  drop_ended();
}

void BusTransport::drop_ended() noexcept {
  std::erase_if(connections_, [this](const auto& connection) {
    if (draining_ && connection->is_idle() && !connection->has_requests()) connection->close();
    if (!connection->has_ended() || !connection->is_idle()) return false;
    thread_.counters.subtract("connections_open");
    thread_.counters.subtract("bus_connections_open");
    return true;
  });
}

void BusTransport::begin_drain() noexcept {
  draining_ = true;
  thread_.loop.remove(listener_watch_);
  drop_ended();  // those that have nothing in flight end now
}

void BusTransport::close_all() noexcept {
  for (const auto& connection : connections_) connection->close();
}

void BusTransport::post(Request& request) noexcept {
  // The ring has a place for every request there is, so it can't be full.
  LUMEN_CHECK(returned_.try_push(&request));
}

void Request::on_returned(service::Call& of_mine) noexcept {
  (void)of_mine;
  host.post(*this);
}

const Status& BusTransport::no_room() noexcept {
  thread_.counters.add("memory_refused");
  return no_room_;
}

Request* BusTransport::acquire() noexcept {
  Request* request = free_;
  if (request == nullptr) return nullptr;
  free_ = std::exchange(request->next, nullptr);
  // Made anew in its place: assigned, it would be made beside it first.
  std::destroy_at(&request->call);
  ::new (static_cast<void*>(&request->call)) service::Call{.owner = request,
                                                           .scratch = &request->memory,
                                                           .reply_memory = &request->reply_place,
                                                           .reply_is_shared = true};
  request->reply_place = ReplyPlace();
  request->reserved_bytes = 0;
  return request;
}

bool BusTransport::take(service::Call& call, const service::ModelNeed&,
                        const service::BodySize&) noexcept {
  auto& request = static_cast<Request&>(*call.owner);
  const models::Model& model = *call.infer.model;
  if (!shares_.try_begin(model, thread_.intake.catalog().models.size())) return false;
  request.room_of = &model;
  return true;
}

void BusTransport::give_back_room(Request& request) noexcept {
  if (request.room_of != nullptr) shares_.end(*std::exchange(request.room_of, nullptr), 0);
}

void BusTransport::release(Request& request) noexcept {
  const RequestMemory::Usage usage = request.memory.reset(kKeepBytes);
  request.memory.use(RequestMemory::Kind::kArena);
  if (request.call.infer.model != nullptr) {
    thread_.counters.add("request_heap_calls", usage.heap_calls);
    thread_.counters.add("request_arena_bytes", usage.arena_bytes);
  }
  request.connection = nullptr;
  request.call.infer.status = {};  // its message is free for others from here on
  // Last in, first out: few clients go on using the few that are hot.
  request.next = std::exchange(free_, &request);
}

}  // namespace lumen::shm
