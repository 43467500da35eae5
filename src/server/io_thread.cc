// The I/O thread's turn: loop, completions, timeouts, drain. See the header.
#include "server/io_thread.h"

#include <lumen/base/check.h>
#include <lumen/base/clock.h>
#include <lumen/base/idle_strategy.h>

#include <algorithm>
#include <utility>

namespace lumen::server {
namespace {

// Timeouts are read from the coarse clock, which may lag by one kernel tick: sleeping that much
// longer spares a few empty turns at each expiry.
constexpr uint64_t kCoarseClockStepNs = 4'000'000;

// How long a turn's end goes on with models that run on this thread, at least one call, before the
// sockets are looked at again: requests that wait for workers, and replies that are ready, lie
// there. About 20 times the cost of a look at the sockets.
constexpr uint64_t kInlineRunsNs = 100'000;

}  // namespace

IoThread::IoThread(const Parts& parts)
    : index_(parts.index),
      counters_(parts.counters),
      submitter_(parts.submitter),
      catalog_(parts.catalog.add_reader([this] { loop_->wake(); })),
      intake_(catalog_, submitter_),
      dispatcher_(parts.steps, submitter_, *this, counters_),
      memory_(parts.options.max_memory_bytes / parts.options.io_thread_count),
      recorder_(parts.counters, parts.record_readers, parts.index, parts.options.io_thread_count),
      drain_timeout_ns_(parts.options.drain_timeout_ns) {}

Result<std::unique_ptr<IoThread>> IoThread::create(
    const Parts& parts, std::span<const transports::MakeTransport> make_transports,
    std::vector<ListenerSocket> sockets) {
  std::unique_ptr<IoThread> io(new IoThread(parts));  // alloc: at start
  Result<std::unique_ptr<net::Loop>> loop = net::make_loop(parts.loop, *io);
  if (!loop.ok()) return loop.status();
  io->loop_ = std::move(*loop);
  parts.submitter.set_wake_sink(*io);
  transports::ThreadServices services{.index = parts.index,
                                      .loop = *io->loop_,
                                      .intake = io->intake_,
                                      .dispatcher = io->dispatcher_,
                                      .counters = io->counters_,
                                      .recorder = io->recorder_,
                                      .memory = io->memory_};
  for (const transports::MakeTransport& make : make_transports) {
    Result<std::unique_ptr<transports::Transport>> transport = make(services);
    if (!transport.ok()) return transport.status();
    if ((*transport)->http2() != nullptr) services.http2 = (*transport)->http2();
    if ((*transport)->tls() != nullptr) services.tls = (*transport)->tls();
    io->transports_.push_back(std::move(*transport));
  }
  LUMEN_RETURN_IF_ERROR(io->listen(std::move(sockets)));
  return io;
}

Status IoThread::listen(std::vector<ListenerSocket> sockets) {
  for (ListenerSocket& socket : sockets) {
    const auto transport = std::ranges::find_if(transports_, [&socket](const auto& one) {
      return one->acceptor(socket.is_local) != nullptr;
    });
    LUMEN_CHECK(transport != transports_.end());
    net::Listener& listener = listeners_.emplace_back();
    listener.fd = std::move(socket.fd);
    listener.is_shared = socket.is_shared;
    listener.handler = (*transport)->acceptor(socket.is_local);
    LUMEN_RETURN_IF_ERROR(loop_->add(listener));
  }
  return {};
}

void IoThread::begin() noexcept {
  IdleStrategy::enrol_this_thread();
  counters_.is_thread(telemetry::WriterRole::kIoThread, index_);
  loop_->observe(counters_.thread_times());
}

void IoThread::run() noexcept {
  while (!draining_ || !is_empty()) {
    const uint64_t wakeups_before = loop_->wakeups();
    const uint64_t calls_before = loop_->system_calls();
    loop_->run_once(next_deadline_ns());
    counters_.add("loop_wakeups", loop_->wakeups() - wakeups_before);
    counters_.add("loop_system_calls", loop_->system_calls() - calls_before);
    expire_timeouts();
    catalog_.end_turn();
    // sync[io.drain]: acquire; the control thread's writes before its request are visible
    if (!draining_ && drain_requested_.load(std::memory_order_acquire)) begin_drain();
  }
  for (const auto& transport : transports_) transport->check_at_rest();
  LUMEN_CHECK(memory_.is_accounted_for());
  submitter_.close();
  catalog_.close();
}

bool IoThread::is_empty() const noexcept {
  return std::ranges::all_of(transports_, [](const auto& one) { return one->is_empty(); });
}

void IoThread::request_drain() noexcept {
  // sync[io.drain]: release; wake() makes run_once() return
  drain_requested_.store(true, std::memory_order_release);
  loop_->wake();
}

void IoThread::begin_drain() noexcept {
  draining_ = true;
  drain_deadline_ns_ = coarse_now_ns() + drain_timeout_ns_;
  for (net::Listener& listener : listeners_) loop_->remove(listener);
  for (const auto& transport : transports_) transport->begin_drain();
}

bool IoThread::may_spin() noexcept {
  return !draining_ &&
         std::ranges::none_of(transports_, [](const auto& one) { return one->is_waiting(); });
}

bool IoThread::poll_memory() noexcept {
  return std::ranges::any_of(transports_, [](const auto& one) { return one->poll_memory(); });
}

void IoThread::before_sleep() noexcept {
  for (const auto& transport : transports_) transport->before_sleep();
}

void IoThread::after_sleep() noexcept {
  for (const auto& transport : transports_) transport->after_sleep();
}

size_t IoThread::on_wake() noexcept {
  submitter_.wake_if_late();
  size_t done = take_returned();
  for (const auto& transport : transports_) done += transport->take_requests();
  return done;
}

size_t IoThread::take_returned() noexcept {
  size_t done = 0;
  for (const auto& transport : transports_) done += transport->take_returned();
  return done;
}

// Workers are woken here: with many clients that is one wake-up for all the requests of a turn.
// Models with the queue type `inline` run here; the requests of one call are answered before the
// next, so that the reply of a fast model does not wait for a slow one.
// Before that, requests that waited for memory begin, so that they are part of this turn.
size_t IoThread::on_turn_end() noexcept {
  size_t done = 0;
  for (const auto& transport : transports_) done += transport->serve_waiting();
  uint64_t began_ns = 0;
  has_runs_left_ = false;
  while (true) {
    // Replies that are ready leave before the run.
    if (loop_->has_gathered() && submitter_.has_runs()) loop_->submit();
    const size_t now_done = submitter_.end_turn();
    if (now_done == 0) break;
    done += now_done;
    submitter_.wake_if_late();
    // No new requests from the bus, of which there may be no end.
    (void)take_returned();
    const uint64_t now = now_ns();
    if (began_ns == 0) began_ns = now;
    has_runs_left_ = now - began_ns >= kInlineRunsNs;
    if (has_runs_left_) break;
  }
  return done;
}

uint64_t IoThread::next_deadline_ns() noexcept {
  if (has_runs_left_) return 0;
  uint64_t next = std::min(drain_deadline_ns_, dispatcher_.next_ns());
  for (const auto& transport : transports_) {
    if (transport->owes_a_turn()) return 0;
    next = std::min(next, transport->next_deadline_ns());
  }
  if (next != UINT64_MAX) next += kCoarseClockStepNs;
  return std::min(next, submitter_.next_ns());
}

void IoThread::expire_timeouts() noexcept {
  const uint64_t now = coarse_now_ns();
  dispatcher_.expire(now);
  for (const auto& transport : transports_) transport->end_turn(now);
  if (now < drain_deadline_ns_) return;
  for (const auto& transport : transports_) transport->close_all();
  drain_deadline_ns_ = UINT64_MAX;  // the engine's other requests complete in their own time
}

}  // namespace lumen::server
