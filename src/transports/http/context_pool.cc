// Contexts and room for requests. See the header.
#include "transports/http/context_pool.h"

#include "transports/http/http_connection.h"
#include "transports/http/http_transport.h"

#include <lumen/base/check.h>
#include <lumen/transports/http/memory_limits.h>

#include <algorithm>
#include <utility>

namespace lumen::http {

size_t ContextPool::contexts_of(const Options& options) noexcept {
  return options.max_active_requests + kHeadContexts;
}

ContextPool::ContextPool(const Options& options, models::Backends& backends, Timeouts& timeouts,
                         const transports::ThreadServices& thread)
    : options_(options),
      backends_(backends),
      timeouts_(timeouts),
      counters_(thread.counters),
      memory_(thread.memory),
      no_room_(Status::error(Code::kNoMemory,
                             "no memory for this request: the server's max_memory_bytes or "
                             "max_active_requests are used up by others; try again")),
      shares_(options.max_active_requests) {}

Status ContextPool::create(HttpTransport& host) {
  host_ = &host;
  memory_.add(*this);
  for (size_t i = 0; i < contexts_of(options_); ++i) {
    auto context = RequestContext::create(host, options_, memory_.budget());
    if (!context.ok()) return context.status();
    (*context)->next_free = std::exchange(free_, context->get());
    LUMEN_RETURN_IF_ERROR(backends_.register_memory((*context)->memory.region()));
    contexts_.push_back(std::move(*context));
  }
  counters_.set("memory_bound_bytes", memory_.budget().total_bytes());
  show_memory();
  return {};
}

ContextPool::~ContextPool() {
  for (const auto& context : contexts_) backends_.unregister_memory(context->memory.region());
}

RequestContext* ContextPool::acquire(HttpConnection& connection) noexcept {
  RequestContext* context = free_;
  if (context == nullptr || waiting_first_ != nullptr) {
    connection.next_free = nullptr;
    (waiting_first_ == nullptr ? waiting_first_ : waiting_last_->next_free) = &connection;
    waiting_last_ = &connection;
    ++waiting_;
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
  context.next_free = free_;
  free_ = &context;
}

void ContextPool::stop_waiting(HttpConnection& connection) noexcept {
  HttpConnection* previous = nullptr;
  for (HttpConnection* c = waiting_first_; c != nullptr; previous = c, c = c->next_free) {
    if (c != &connection) continue;
    (previous == nullptr ? waiting_first_ : previous->next_free) = c->next_free;
    if (waiting_last_ == c) waiting_last_ = previous;
    c->next_free = nullptr;
    --waiting_;
    return;
  }
}

size_t ContextPool::serve_waiting() noexcept {
  size_t served = give_contexts();
  while (waiting_ > 0 && one_gives_way()) {
  }
  served += give_contexts();
  return served + give_room();
}

// Ends its walk with the first that gives way, since that may change all lists. One that has given
// way before still sends the reply that says so; where that reply is stuck, it is closed.
bool ContextPool::one_gives_way() noexcept {
  for (net::TimeoutList* list :
       {&timeouts_.head, &timeouts_.room, &timeouts_.body, &timeouts_.write}) {
    for (net::TimeoutEntry* entry = list->oldest(); entry != nullptr; entry = list->after(*entry)) {
      auto& connection = *static_cast<HttpConnection*>(entry->owner);
      RequestContext& context = connection.context();
      const bool is_new = !context.gives_way;
      if (is_new && coming_ >= waiting_) continue;
      // Before, since the context may come free within the call.
      if (is_new) set_gives_way(context, true);
      if (connection.give_way()) return true;
      if (is_new) set_gives_way(context, false);
    }
  }
  return false;
}

void ContextPool::set_gives_way(RequestContext& context, bool gives_way) noexcept {
  if (context.gives_way == gives_way) return;
  context.gives_way = gives_way;
  gives_way ? ++coming_ : --coming_;
}

// In order. A connection that is resumed may release its context at once; it does not wait again
// before the loop has told it of more bytes.
size_t ContextPool::give_contexts() noexcept {
  size_t given = 0;
  while (free_ != nullptr && waiting_first_ != nullptr) {
    RequestContext& context = *free_;
    free_ = context.next_free;
    HttpConnection& connection = *waiting_first_;
    waiting_first_ = std::exchange(connection.next_free, nullptr);
    --waiting_;
    context.connection = &connection;
    connection.resume(context);
    ++given;
  }
  return given;
}

void ContextPool::end_request(RequestContext& context) noexcept {
  LUMEN_CHECK(!context.is_away);  // the engine or a step would write into the next request
  set_gives_way(context, false);  // a connection may keep it for the next request of its client
  const bool is_of_a_model = context.call.infer.model != nullptr;
  end_call(context);
  const RequestMemory::Usage usage = context.reset();
  // Documents and scrapes lie in the region for any allocator of the models: not counted.
  if (is_of_a_model) {
    counters_.add("request_heap_calls", usage.heap_calls);
    counters_.add("request_arena_bytes", usage.arena_bytes);
  }
  if (!memory_.is_awaited()) return;
  context.memory.drop_kept_pages();
  memory_.on_freed();
}

// First the memory: each that fits, the longest waiting first, so that a small request does not
// wait behind a large one. Nothing else runs meanwhile. Then they begin, and any of them may end
// requests, its own and others.
size_t ContextPool::give_room() noexcept {
  if (!std::exchange(owes_room_, false)) return 0;
  bool has_dropped = false;
  for (net::TimeoutEntry* entry = timeouts_.room.oldest(); entry != nullptr;) {
    net::TimeoutEntry& looked_at = *entry;
    entry = timeouts_.room.after(looked_at);
    RequestContext& context = static_cast<HttpConnection*>(looked_at.owner)->context();
    bool has_room = reserve_room(context);
    if (!has_room && !has_dropped) {
      has_dropped = true;  // after that idle contexts keep nothing
      has_room = memory_.drop_kept_pages() > 0 && reserve_room(context);
    }
    if (has_room) granted_.start(looked_at, 0);
  }
  size_t begun = 0;
  while (net::TimeoutEntry* entry = granted_.oldest()) {
    entry->unlink();
    static_cast<HttpConnection*>(entry->owner)->begin_reading();
    ++begun;
  }
  return begun;
}

// Idle contexts keep the pages of their last requests. Returns how many bytes came free.
size_t ContextPool::drop_kept_pages() noexcept {
  size_t bytes = 0;
  for (RequestContext* idle = free_; idle != nullptr; idle = idle->next_free) {
    bytes += idle->memory.drop_kept_pages();
  }
  return bytes;
}

bool ContextPool::has_share(const RequestContext& context) const noexcept {
  return host_->thread().intake.catalog().models.size() < 2 ||
         shares_.may_begin(*context.call.infer.model, memory_.budget().free_was());
}

bool ContextPool::reserve_room(RequestContext& context) noexcept {
  LUMEN_CHECK(!context.has_room());  // a request begins once
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

bool ContextPool::take(service::Call& call, const service::ModelNeed& model,
                       const service::BodySize& body) noexcept {
  auto& context = static_cast<RequestContext&>(*call.owner);
  context.need = model.of(body);
  // It may fit where another does not: that is seen at the end of this turn.
  if (timeouts_.room.oldest() != nullptr) {
    owes_room_ = true;
    return false;
  }
  if (reserve_room(context)) return true;
  if (!shares_.has_free_call() || !shares_.has_call_share(*context.call.infer.model)) return false;
  // Memory is short: the pages of idle contexts go first. Once some wait, end_request() keeps none.
  for (RequestContext* idle = free_; idle != nullptr; idle = idle->next_free) {
    if (idle->memory.drop_kept_pages() > 0 && reserve_room(context)) return true;
  }
  return memory_.drop_kept_pages() > 0 && reserve_room(context);
}

// Once a turn: workers take from the budget too, and nobody needs to know to the moment.
void ContextPool::show_memory() noexcept {
  counters_.set("memory_reserved_bytes",
                memory_.budget().total_bytes() - memory_.budget().free_was());
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
  memory_.on_freed();
}

void ContextPool::check_at_rest() const noexcept {
  LUMEN_CHECK(waiting_first_ == nullptr && waiting_ == 0 && coming_ == 0);
  LUMEN_CHECK(timeouts_.room.oldest() == nullptr && granted_.oldest() == nullptr);
  LUMEN_CHECK(shares_.is_unused());
  size_t free = 0;
  for (const RequestContext* context = free_; context != nullptr; context = context->next_free)
    ++free;
  LUMEN_CHECK(free == contexts_.size());
  for (const auto& context : contexts_) LUMEN_CHECK(!context->has_room() && !context->is_away);
}

size_t ContextPool::charged_bytes() const noexcept {
  size_t bytes = 0;
  for (const auto& context : contexts_) bytes += context->memory.charged_bytes();
  return bytes;
}

}  // namespace lumen::http
