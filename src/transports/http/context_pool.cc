// Contexts and room for requests. See the header.
#include "transports/http/context_pool.h"

#include "transports/http/connection.h"
#include "transports/http/connection_host.h"

#include <lumen/transports/http/memory_limits.h>

#include <algorithm>
#include <utility>

namespace lumen::http {

size_t ContextPool::contexts_of(const Options& options) noexcept {
  return options.max_active_requests + kHeadContexts;
}

ContextPool::ContextPool(const Options& options, engine::Backends& backends, Timeouts& timeouts,
                         telemetry::CounterWriter& counters)
    : options_(options),
      backends_(backends),
      timeouts_(timeouts),
      counters_(counters),
      budget_(options.max_memory_bytes),
      no_room_(Status::error(Code::kNoMemory,
                             "no memory for this request: the server's max_memory_bytes or "
                             "max_active_requests are used up by others; try again")),
      shares_(options.max_active_requests) {}

Status ContextPool::create(ConnectionHost& host) {
  host_ = &host;
  for (size_t i = 0; i < contexts_of(options_); ++i) {
    auto context = RequestContext::create(host, options_, budget_);
    if (!context.ok()) return context.status();
    (*context)->next_free = std::exchange(free_, context->get());
    LUMEN_RETURN_IF_ERROR(backends_.register_memory((*context)->memory.region()));
    contexts_.push_back(std::move(*context));
  }
  counters_.set("memory_bound_bytes", budget_.total_bytes());
  show_memory();
  return {};
}

ContextPool::~ContextPool() {
  for (const auto& context : contexts_) backends_.unregister_memory(context->memory.region());
}

RequestContext* ContextPool::acquire(Connection& connection) noexcept {
  RequestContext* context = free_;
  if (context == nullptr) {
    wait(connection);
    return nullptr;
  }
  free_ = context->next_free;
  context->connection = &connection;
  return context;
}

void ContextPool::release(RequestContext& context) noexcept {
  context.buffer.clear();
  end_request(context);
  context.connection = nullptr;
  if (waiting_first_ != nullptr) {
    Connection* connection = waiting_first_;
    waiting_first_ = std::exchange(connection->next_free, nullptr);
    context.connection = connection;
    connection->resume(context);
    return;
  }
  context.next_free = free_;
  free_ = &context;
}

void ContextPool::wait(Connection& connection) noexcept {
  connection.next_free = nullptr;
  (waiting_first_ == nullptr ? waiting_first_ : waiting_last_->next_free) = &connection;
  waiting_last_ = &connection;
  ++ways_owed_;
  make_way();
}

void ContextPool::stop_waiting(Connection& connection) noexcept {
  Connection* previous = nullptr;
  for (Connection* c = waiting_first_; c != nullptr; previous = c, c = c->next_free) {
    if (c != &connection) continue;
    (previous == nullptr ? waiting_first_ : previous->next_free) = c->next_free;
    if (waiting_last_ == c) waiting_last_ = previous;
    c->next_free = nullptr;
    return;
  }
}

void ContextPool::make_way() noexcept {
  if (waiting_first_ == nullptr) ways_owed_ = 0;
  while (ways_owed_ > 0 && one_gives_way()) --ways_owed_;
}

bool ContextPool::one_gives_way() noexcept {
  for (net::TimeoutList* list :
       {&timeouts_.head, &timeouts_.room, &timeouts_.body, &timeouts_.write}) {
    for (net::TimeoutEntry* entry = list->oldest(); entry != nullptr; entry = list->after(*entry)) {
      if (static_cast<Connection*>(entry->owner)->give_way()) return true;
    }
  }
  return false;
}

void ContextPool::end_turn() noexcept {
  make_way();
  show_memory();
}

void ContextPool::end_request(RequestContext& context) noexcept {
  const bool is_of_a_model = context.call.infer.model != nullptr;
  end_call(context);
  const RequestMemory::Usage usage = context.reset();
  // Documents and scrapes lie in the region whatever the allocator of the models is: not counted.
  if (is_of_a_model) {
    counters_.add("request_heap_calls", usage.heap_calls);
    counters_.add("request_arena_bytes", usage.arena_bytes);
  }
  if (timeouts_.room.oldest() == nullptr) return;
  context.memory.drop_kept_pages();
  grant_room();
}

// Each that fits, the longest waiting first: a small request does not wait behind a large one.
void ContextPool::grant_room() noexcept {
  for (net::TimeoutEntry* entry = timeouts_.room.oldest(); entry != nullptr;) {
    auto& connection = *static_cast<Connection*>(entry->owner);
    entry = timeouts_.room.after(*entry);
    if (reserve_room(connection.context())) connection.begin_reading();
  }
}

bool ContextPool::has_share(const RequestContext& context) const noexcept {
  return host_->thread().catalog.now().models.size() < 2 ||
         shares_.may_begin(*context.call.infer.model, budget_.free_was());
}

bool ContextPool::reserve_room(RequestContext& context) noexcept {
  if (!shares_.has_free_call() || !has_share(context)) return false;
  if (!context.memory.reserve(context.need.all_bytes())) return false;
  context.room_of = context.call.infer.model;
  context.room_bytes = context.memory.charged_bytes();
  shares_.begin(*context.room_of, context.room_bytes);
  return true;
}

void ContextPool::end_call(RequestContext& context) noexcept {
  if (!context.has_room()) return;
  shares_.end(*std::exchange(context.room_of, nullptr), std::exchange(context.room_bytes, 0));
}

bool ContextPool::take_room(RequestContext& context) noexcept {
  if (reserve_room(context)) return true;
  if (!shares_.has_free_call() || !shares_.has_call_share(*context.call.infer.model)) return false;
  // Memory is short. Idle contexts keep the pages of their last requests: these go first. Once some wait,
  // end_request() keeps none.
  for (RequestContext* idle = free_; idle != nullptr; idle = idle->next_free) {
    if (idle->memory.drop_kept_pages() > 0 && reserve_room(context)) return true;
  }
  return false;
}

// Once a turn: workers take from the budget too, and nobody needs to know to the moment.
void ContextPool::show_memory() noexcept {
  counters_.set("memory_reserved_bytes", budget_.total_bytes() - budget_.free_was());
  // Each holds a context, so they are few.
  uint64_t waiting = 0;
  for (const net::TimeoutEntry* entry = timeouts_.room.oldest(); entry != nullptr;
       entry = timeouts_.room.after(*entry)) {
    ++waiting;
  }
  counters_.set("memory_waiting", waiting);
}

void ContextPool::settle(RequestContext& context) noexcept {
  // Less is not worth the look for others that wait.
  constexpr size_t kWorthIt = 1 << 20;
  const size_t charged = context.memory.charged_bytes();
  if (charged < kWorthIt) return;
  context.memory.settle(context.need.reply_bytes);
  const size_t less = charged - std::min(context.memory.charged_bytes(), charged);
  if (less == 0) return;
  const size_t given_back = std::min(less, context.room_bytes);
  context.room_bytes -= given_back;
  shares_.give_back(*context.room_of, given_back);
  grant_room();
}

}  // namespace lumen::http
