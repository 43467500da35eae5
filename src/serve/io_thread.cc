// The I/O thread's turn: loop, completions, timeouts, drain. See the header.
#include "serve/io_thread.h"

#include "serve/memory_limits.h"

#include <lumen/base/check.h>
#include <lumen/base/clock.h>
#include <lumen/base/idle_strategy.h>

#include <algorithm>
#include <bit>
#include <ctime>
#include <utility>

namespace lumen::serve {
namespace {

// A closed connection's object is free only once the loop has let go of it, which takes a turn; a turn
// accepts no more than this many.
constexpr size_t kSpareConnections = 64;
size_t contexts_of(const ServerOptions& options) noexcept {
  return options.max_active_requests + kHeadContexts;
}

constexpr size_t kScratchBytes = 64 * 1024;
// Timeouts are read from the coarse clock, which may lag by one kernel tick: sleeping that much
// longer spares a few empty turns at each expiry.
constexpr uint64_t kCoarseClockStepNs = 4'000'000;

}  // namespace

IoThread::IoThread(const Services& services, uint32_t index, engine::Submitter& submitter,
                   ListenerSockets sockets)
    : services_(services),
      index_(index),
      counters_(services.counters),
      submitter_(submitter),
      catalog_(services.catalog.add_reader([this] { loop_->wake(); })),
      dispatcher_(services.options.steps, submitter_, *this, counters_),
      timeouts_(services.options.timeouts),
      scratch_(kScratchBytes),
      budget_(services.options.max_memory_bytes / services.options.io_thread_count),
      no_room_(Status::error(Code::kResourceExhausted,
                             "no memory for this request: the server's max_memory_bytes or "
                             "max_active_requests are used up by others; try again")),
      completions_(std::bit_ceil(contexts_of(services.options))) {
  scratch_segments_.fill({scratch_.data(), scratch_.size()});
  tcp_listener_.fd = std::move(sockets.tcp);
  tcp_listener_.handler = &tcp_acceptor_;
  unix_listener_.fd = std::move(sockets.unix_socket);
  unix_listener_.handler = &unix_acceptor_;
  unix_listener_.is_shared = services.options.io_thread_count > 1;
}

Result<std::unique_ptr<IoThread>> IoThread::create(const Services& services, uint32_t index,
                                                   engine::Submitter& submitter,
                                                   ListenerSockets sockets) {
  std::unique_ptr<IoThread> io(
      new IoThread(services, index, submitter, std::move(sockets)));  // alloc: at start
  Result<std::unique_ptr<net::Loop>> loop = net::make_loop(*io);
  if (!loop.ok()) return loop.status();
  io->loop_ = std::move(*loop);
  for (net::Listener* listener : {&io->tcp_listener_, &io->unix_listener_}) {
    if (listener->fd.valid()) LUMEN_RETURN_IF_ERROR(io->loop_->add(*listener));
  }
  io->submitter_.set_wake_sink(*io);
  for (size_t i = 0; i < services.options.max_connections + kSpareConnections; ++i) {
    Connection& connection = io->connections_.emplace_back(*io);
    connection.next_free = io->free_connections_;
    io->free_connections_ = &connection;
  }
  for (size_t i = 0; i < contexts_of(services.options); ++i) {
    auto context = RequestContext::create(services.options.max_body_bytes, services.options.regions,
                                          io->budget_);
    if (!context.ok()) return context.status();
    (*context)->io_thread = io.get();
    (*context)->next_free = io->free_contexts_;
    io->free_contexts_ = context->get();
    LUMEN_RETURN_IF_ERROR(
        services.repository.backends().register_memory((*context)->memory.region()));
    io->contexts_.push_back(std::move(*context));
  }
  io->counters_.set("memory_bound_bytes", io->budget_.total_bytes());
  io->show_memory();
  return io;
}

IoThread::~IoThread() {
  for (const auto& context : contexts_) {
    services_.repository.backends().unregister_memory(context->memory.region());
  }
}

void IoThread::ask_control(RequestContext& context, std::string_view body) noexcept {
  ++in_engine_;
  services_.control.submit(context, body, context.peer);
}

void IoThread::ask_metrics(RequestContext& context) noexcept {
  ++in_engine_;
  services_.metrics.submit(context);
}

void IoThread::run() noexcept {
  IdleStrategy::enrol_this_thread();
  while (!draining_ || open_connections_ + closing_connections_ > 0) {
    const uint64_t wakeups_before = loop_->wakeups();
    loop_->run_once(next_deadline_ns());
    counters_.add("loop_wakeups", loop_->wakeups() - wakeups_before);
    expire_timeouts();
    make_way();
    show_memory();
    catalog_.end_turn();
    // sync[io.drain]: acquire; what the control thread did before it asked is visible
    if (!draining_ && drain_requested_.load(std::memory_order_acquire)) begin_drain();
  }
  submitter_.close();
  catalog_.close();
}

void IoThread::request_drain() noexcept {
  // sync[io.drain]: release; wake() makes run_once() return
  drain_requested_.store(true, std::memory_order_release);
  loop_->wake();
}

void IoThread::begin_drain() noexcept {
  draining_ = true;
  drain_deadline_ns_ = coarse_now_ns() + services_.options.drain_timeout_ns;
  for (net::Listener* listener : {&tcp_listener_, &unix_listener_}) {
    if (listener->fd.valid()) loop_->remove(*listener);
  }
  for (Connection& connection : connections_) connection.on_drain();
}

void IoThread::post(RequestContext& context) noexcept {
  // The ring has a place for every context there is, so it can't be full.
  LUMEN_CHECK(completions_.try_push(&context));
}

bool IoThread::fits_budget(RequestContext& context) noexcept {
  context.call.infer.outside_ns = loop_->last_turn_ns() + reply_time_.high_ns();
  return submitter_.fits_budget(context.call.infer);
}

engine::SubmitOutcome IoThread::submit(RequestContext& context) noexcept {
  const engine::SubmitOutcome outcome = dispatcher_.submit(context.call);
  if (outcome == engine::SubmitOutcome::kAccepted) ++in_engine_;
  return outcome;
}

// Workers are woken here: with many clients that is one wake-up for all the requests that a turn
// brought. With `inline` the models run here; what one call brought is answered before the next, so that
// the reply of a fast model does not wait for a slow one.
size_t IoThread::on_turn_end() noexcept {
  size_t done = 0;
  while (const size_t now_done = submitter_.end_turn()) {
    done += now_done;
    (void)on_wake();
  }
  return done;
}

void IoThread::end_request(RequestContext& context) noexcept {
  const bool is_of_a_model = context.call.infer.model != nullptr;
  const RequestMemory::Usage usage = context.reset();
  // Documents and scrapes lie in the region whatever the allocator of the models is: not counted.
  if (is_of_a_model) {
    counters_.add("request_heap_calls", usage.heap_calls);
    counters_.add("request_arena_bytes", usage.arena_bytes);
  }
  if (std::exchange(context.has_room, false)) --calls_in_memory_;
  if (timeouts_.room.oldest() == nullptr) return;
  context.memory.drop_kept_pages();
  grant_room();
}

// Each that fits, the longest waiting first: a small request does not wait behind a large one.
void IoThread::grant_room() noexcept {
  for (net::TimeoutEntry* entry = timeouts_.room.oldest(); entry != nullptr;) {
    auto& connection = *static_cast<Connection*>(entry->owner);
    entry = timeouts_.room.after(*entry);
    if (reserve_room(connection.context())) connection.begin_reading();
  }
}

bool IoThread::reserve_room(RequestContext& context) noexcept {
  if (calls_in_memory_ >= services_.options.max_active_requests) return false;
  if (!context.memory.reserve(context.need.all_bytes())) return false;
  ++calls_in_memory_;
  context.has_room = true;
  return true;
}

bool IoThread::take_room(RequestContext& context) noexcept {
  if (reserve_room(context)) return true;
  if (calls_in_memory_ >= services_.options.max_active_requests) return false;
  // Memory is short. Idle contexts keep the pages of their last requests: these go first. Once some wait,
  // end_request() keeps none.
  for (RequestContext* idle = free_contexts_; idle != nullptr; idle = idle->next_free) {
    if (idle->memory.drop_kept_pages() > 0 && reserve_room(context)) return true;
  }
  return false;
}

void IoThread::settle(RequestContext& context) noexcept {
  // Less is not worth the look for others that wait.
  constexpr size_t kWorthIt = 1 << 20;
  const size_t charged = context.memory.charged_bytes();
  if (charged < kWorthIt) return;
  context.memory.settle(context.need.reply_bytes);
  if (context.memory.charged_bytes() < charged) grant_room();
}

// Once a turn: workers take from the budget too, and nobody needs to know to the moment.
void IoThread::show_memory() noexcept {
  counters_.set("memory_reserved_bytes", budget_.total_bytes() - budget_.free_was());
  // Each holds a context, so they are few.
  uint64_t waiting = 0;
  for (const net::TimeoutEntry* entry = timeouts_.room.oldest(); entry != nullptr;
       entry = timeouts_.room.after(*entry)) {
    ++waiting;
  }
  counters_.set("memory_waiting", waiting);
}

bool IoThread::one_gives_way() noexcept {
  for (net::TimeoutList* list :
       {&timeouts_.head, &timeouts_.room, &timeouts_.body, &timeouts_.write}) {
    for (net::TimeoutEntry* entry = list->oldest(); entry != nullptr; entry = list->after(*entry)) {
      if (static_cast<Connection*>(entry->owner)->give_way()) return true;
    }
  }
  return false;
}

size_t IoThread::on_wake() noexcept {
  submitter_.wake_if_late();
  size_t done = 0;
  RequestContext* context = nullptr;
  while (completions_.try_pop(context)) {
    ++done;
    if (!dispatcher_.take_back(context->call)) continue;
    --in_engine_;
    context->connection->on_returned();
  }
  return done;
}

RequestContext* IoThread::acquire_context(Connection& connection) noexcept {
  RequestContext* context = free_contexts_;
  if (context == nullptr) return nullptr;
  free_contexts_ = context->next_free;
  context->connection = &connection;
  return context;
}

void IoThread::release_context(RequestContext& context) noexcept {
  context.buffer.clear();
  end_request(context);
  context.connection = nullptr;
  if (waiting_first_ != nullptr) {
    Connection* connection = waiting_first_;
    waiting_first_ = connection->next_free;
    connection->next_free = nullptr;
    context.connection = connection;
    connection->resume(context);
    return;
  }
  context.next_free = free_contexts_;
  free_contexts_ = &context;
}

void IoThread::make_way() noexcept {
  if (waiting_first_ == nullptr) ways_owed_ = 0;
  while (ways_owed_ > 0 && one_gives_way()) --ways_owed_;
}

void IoThread::wait_for_context(Connection& connection) noexcept {
  connection.next_free = nullptr;
  if (waiting_first_ == nullptr) {
    waiting_first_ = &connection;
  } else {
    waiting_last_->next_free = &connection;
  }
  waiting_last_ = &connection;
  ++ways_owed_;
  make_way();
}

void IoThread::stop_waiting(Connection& connection) noexcept {
  Connection* previous = nullptr;
  for (Connection* c = waiting_first_; c != nullptr; previous = c, c = c->next_free) {
    if (c != &connection) continue;
    (previous == nullptr ? waiting_first_ : previous->next_free) = c->next_free;
    if (waiting_last_ == c) waiting_last_ = previous;
    c->next_free = nullptr;
    return;
  }
}

void IoThread::connection_closing() noexcept {
  --open_connections_;
  ++closing_connections_;
  counters_.subtract("connections_open");
}

void IoThread::connection_closed(Connection& connection) noexcept {
  --closing_connections_;
  connection.next_free = free_connections_;
  free_connections_ = &connection;
}

bool IoThread::accept(net::Socket socket, bool is_local) noexcept {
  counters_.add("connections_accepted");
  // The oldest idle connection makes room; where all are busy the new one is refused.
  const size_t limit = services_.options.max_connections;
  net::TimeoutEntry* oldest = timeouts_.idle.oldest();
  if (open_connections_ >= limit && oldest != nullptr) {
    static_cast<Connection*>(oldest->owner)->close();
  }
  if (open_connections_ >= limit || free_connections_ == nullptr) {
    counters_.add("connections_refused");
    return false;
  }
  Connection* connection = free_connections_;
  free_connections_ = connection->next_free;
  connection->next_free = nullptr;
  ++open_connections_;
  counters_.add("connections_open");
  connection->open(socket, is_local);
  return true;
}

void IoThread::Acceptor::on_accept_failed(int error_number) noexcept {
  (void)error_number;  // EMFILE and its like: the loop has refused the connection
  io.counters_.add("connections_refused");
}

std::string_view IoThread::http_date() noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME_COARSE, &now);  // 3 ns; the value changes once a second
  if (now.tv_sec != date_seconds_) {
    date_seconds_ = now.tv_sec;
    wire::write_http_date(std::span<char, wire::kDateBytes>(date_), date_seconds_);
  }
  return {date_.data(), date_.size()};
}

uint64_t IoThread::next_deadline_ns() noexcept {
  uint64_t next = std::min(draining_ ? drain_deadline_ns_ : UINT64_MAX, dispatcher_.next_ns());
  for (net::TimeoutList* list : timeouts_.all()) {
    next = std::min(next, list->next_deadline_ns());
  }
  if (ways_owed_ > 0) next = std::min(next, coarse_now_ns());
  if (next != UINT64_MAX) next += kCoarseClockStepNs;
  return std::min(next, submitter_.next_ns());
}

void IoThread::expire_timeouts() noexcept {
  const uint64_t now = coarse_now_ns();
  dispatcher_.expire(now);
  for (net::TimeoutList* list : timeouts_.all()) {
    while (net::TimeoutEntry* entry = list->take_expired(now)) {
      static_cast<Connection*>(entry->owner)->on_timeout();
    }
  }
  if (draining_ && now >= drain_deadline_ns_) {
    for (Connection& connection : connections_) connection.close();
    drain_deadline_ns_ = UINT64_MAX;  // what the engine still holds completes in its own time
  }
}

}  // namespace lumen::serve
