// The loop of one load thread. Its own thread; no allocation for a reply; what fails is counted.
#include "load/load_thread.h"

#include "load/thread_share.h"

#include <lumen/base/clock.h>

#include <sys/epoll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <string>

namespace lumen::load {

namespace {

// A client that failed tries again this much later, and requests are looked at for their timeout.
constexpr uint64_t kRestNs = 10'000'000u;
constexpr uint64_t kLongestRestS = 3'600;
constexpr uint64_t kTickNs = 100'000'000u;
// Open loop: how long after its end a run waits for replies that are under way.
constexpr uint64_t kGraceNs = 1'000'000'000u;

}  // namespace

LoadThread::LoadThread(const LoadPlan& plan, uint32_t index, const std::atomic<bool>& stop)
    : plan_(plan),
      stop_(stop),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      random_(index + 1),
      chooser_(plan.repeat_ratio, VariantChooser::some_first()),
      inputs_at_(plan.request.size()) {
  for (const InputTensor& input : plan.inputs) {
    inputs_at_ -= std::min(inputs_at_, input.bytes.size());
  }
  const uint64_t clients = share(plan.clients, plan.threads, index);
  for (uint64_t i = 0; i < clients; ++i) clients_.emplace_back(plan, epoll_.get());
  idle_.reserve(clients);
  if (plan.requests != 0) {
    warm_up_count_ = share(plan.warm_up_requests, plan.threads, index);
    total_count_ = warm_up_count_ + share(plan.requests, plan.threads, index);
  }
  if (plan.is_open_loop()) {
    rate_ = plan.rate * static_cast<double>(clients) / plan.clients;
    phase_ = static_cast<double>(index) / plan.threads;
  }
}

void LoadThread::run(uint64_t start_ns) {
  // The default slack of 50 us would be booked as the server's wherever a request is timed.
  prctl(PR_SET_TIMERSLACK, 1);
  next_tick_ns_ = start_ns + kTickNs;
  if (plan_.is_open_loop()) schedule_ = Schedule(start_ns, rate_, phase_);
  if (total_count_ == 0) {
    begin_ns_ = start_ns + plan_.warm_up_ns;
    end_ns_ = begin_ns_ + plan_.duration_ns;
  }
  uint64_t now = now_ns();
  for (Client& client : clients_) make_idle(client, now);
  std::array<epoll_event, 256> events;
  while (!is_over(now)) {
    if (!window_open_ && begin_ns_ != 0 && now >= begin_ns_) open_window();
    if (plan_.is_open_loop()) dispatch_due(now);
    const timespec sleep = time_to_sleep(now);
    const int count =
        epoll_pwait2(epoll_.get(), events.data(), static_cast<int>(events.size()), &sleep, nullptr);
    ++polls_;
    if (count <= 0) ++empty_polls_;
    for (int i = 0; i < count; ++i) {
      auto& client = *static_cast<Client*>(events[static_cast<size_t>(i)].data.ptr);
      const bool was_asked = client.connection.is_busy();
      const Step step = client.connection.advance();
      if (was_asked && step != Step::kPending) settle(client, step);
    }
    const uint64_t turn_began = now;
    now = now_ns();
    if (count > 0) busy_ns_ += now - turn_began;
    if (now >= next_tick_ns_) tick(now);
  }
  close_window(now);
}

bool LoadThread::is_over(uint64_t now) const noexcept {
  // relaxed: nothing else is read because of it.
  if (stop_.load(std::memory_order_relaxed)) return true;
  if (clients_.empty()) return true;
  if (total_count_ != 0) return settled_count_ == total_count_;
  if (now < end_ns_) return false;
  return !plan_.is_open_loop() || busy_ == 0 || now >= end_ns_ + kGraceNs;
}

bool LoadThread::in_window(const Client& client, uint64_t now) const noexcept {
  // By time, what comes back in the window counts, whenever it was due: a server that has fallen behind
  // in the warm-up goes on answering what is late.
  return total_count_ != 0 ? client.measured : now >= begin_ns_;
}

timespec LoadThread::time_to_sleep(uint64_t now) const noexcept {
  if (plan_.poll) return {};
  uint64_t until_ns = next_tick_ns_;
  if (end_ns_ > now) until_ns = std::min(until_ns, end_ns_);
  if (!window_open_ && begin_ns_ > now) until_ns = std::min(until_ns, begin_ns_);
  if (plan_.is_open_loop() && !idle_.empty()) {
    const uint64_t due_ns = schedule_.due_ns(sent_count_);
    const bool is_wanted = total_count_ == 0 ? due_ns < end_ns_ : sent_count_ < total_count_;
    if (is_wanted) until_ns = std::min(until_ns, due_ns);
  }
  const uint64_t left_ns = until_ns > now ? until_ns - now : 0;
  timespec sleep{};
  sleep.tv_sec = static_cast<time_t>(left_ns / 1'000'000'000u);
  sleep.tv_nsec = static_cast<long>(left_ns % 1'000'000'000u);
  return sleep;
}

void LoadThread::make_idle(Client& client, uint64_t now) {
  if (!plan_.is_open_loop()) return start_closed(client, now);
  client.idle_since_ns = now;
  idle_.push_back(&client);
}

void LoadThread::start_closed(Client& client, uint64_t now) {
  if (total_count_ != 0 && sent_count_ == total_count_) return;
  send_one(client, sent_count_, now);
}

void LoadThread::dispatch_due(uint64_t now) {
  const uint64_t limit_ns = total_count_ == 0 ? std::min(now, end_ns_) : now;
  while (!idle_.empty() && (total_count_ == 0 || sent_count_ < total_count_)) {
    const uint64_t due_ns = schedule_.due_ns(sent_count_);
    if (due_ns >= limit_ns) break;
    // Nobody could have sent it earlier unless a client was idle when it fell due.
    const bool could_have = idle_.front()->idle_since_ns < due_ns;
    Client& client = *idle_.back();
    idle_.pop_back();
    client.intended_ns = due_ns;
    if (could_have && due_ns >= begin_ns_) tally_.send_lag.record(now - due_ns);
    send_one(client, sent_count_, now);
  }
  uint64_t due = schedule_.due_count(limit_ns);
  if (total_count_ != 0) due = std::min(due, total_count_);
  if (due > sent_count_) tally_.most_waiting = std::max(tally_.most_waiting, due - sent_count_);
}

void LoadThread::send_one(Client& client, uint64_t sequence, uint64_t now) {
  client.measured = total_count_ == 0 || sequence >= warm_up_count_;
  const bool warms_up = total_count_ != 0 ? !client.measured : now < begin_ns_;
  if (total_count_ != 0 && client.measured && begin_ns_ == 0) {
    begin_ns_ = plan_.is_open_loop() ? client.intended_ns : now;
    open_window();
  }
  ++sent_count_;
  ++busy_;
  const Step step = client.connection.begin(request_of(client, warms_up));
  if (step == Step::kPending) return;
  // Refused before it could be sent. Not settle(): that begins the next request, and a server that
  // refuses everything at once would make the stack grow.
  --busy_;
  ++settled_count_;
  if (step == Step::kReplied) {
    count_reply(client, now);
  } else {
    count_failure(client, now, client.connection.failure(), client.connection.error_text());
  }
  rest(client, now + kRestNs);
}

std::string_view LoadThread::request_of(Client& client, bool warms_up) noexcept {
  if (plan_.variants) {
    char* const inputs = client.request.data() + inputs_at_;
    plan_.variants->write(chooser_.next(), inputs + plan_.variants->offset());
    return client.request;
  }
  const bool other = warms_up && !plan_.warm_up_request.empty();
  return other ? plan_.warm_up_request : plan_.request;
}

void LoadThread::settle(Client& client, Step step) {
  const uint64_t now = now_ns();
  --busy_;
  ++settled_count_;
  if (step == Step::kFailed) {
    count_failure(client, now, client.connection.failure(), client.connection.error_text());
    return rest(client, now + kRestNs);
  }
  count_reply(client, now);
  if (plan_.new_connection) client.connection.close();
  if (const uint64_t wait_ns = told_to_wait_ns(client); wait_ns > 0) {
    return rest(client, now + wait_ns);
  }
  make_idle(client, now);
}

// Up to half as long again as told, by chance: who was refused together must not come back together.
uint64_t LoadThread::told_to_wait_ns(const Client& client) noexcept {
  if (!plan_.obey_retry_after || plan_.is_open_loop() || client.connection.status() == 200)
    return 0;
  const uint64_t told_s = std::min(client.connection.retry_after_s().value_or(0), kLongestRestS);
  return told_s * (1'000'000'000u + random_() % 500'000'000u);
}

void LoadThread::rest(Client& client, uint64_t until_ns) {
  client.resting_until_ns = until_ns;
  next_tick_ns_ = std::min(next_tick_ns_, until_ns);
}

void LoadThread::count_reply(const Client& client, uint64_t now) {
  const ClientConnection& connection = client.connection;
  const bool counts = in_window(client, now);
  if (connection.connected_anew() && (counts || !plan_.new_connection)) {
    tally_.connect.record(connection.connected_ns() - connection.began_ns());
  }
  if (!counts) return;
  last_ns_ = now;
  ++tally_.by_status[static_cast<size_t>(connection.status())];
  tally_.bytes_sent += plan_.request.size();
  tally_.bytes_received += connection.reply_bytes();
  if (connection.status() != 200) {
    if (tally_.first_error.empty()) {
      tally_.first_error = connection.reply_start().substr(0, kErrorTextBytes);
    }
    return;
  }
  uint64_t from_ns = plan_.new_connection ? connection.began_ns() : connection.connected_ns();
  if (plan_.is_open_loop()) from_ns = client.intended_ns;
  tally_.latency.record(now - from_ns);
  tally_.shortest_reply = std::min(tally_.shortest_reply, connection.reply_bytes());
  tally_.longest_reply = std::max(tally_.longest_reply, connection.reply_bytes());
}

void LoadThread::count_failure(const Client& client, uint64_t now, Failure failure,
                               const std::string& text) {
  if (!in_window(client, now)) return;
  last_ns_ = now;
  ++tally_.failures[static_cast<size_t>(failure)];
  if (tally_.first_error.empty()) tally_.first_error = text;
}

void LoadThread::tick(uint64_t now) {
  next_tick_ns_ = now + kTickNs;
  for (Client& client : clients_) {
    if (client.resting_until_ns > now) {
      next_tick_ns_ = std::min(next_tick_ns_, client.resting_until_ns);
    } else if (client.resting_until_ns != 0) {
      client.resting_until_ns = 0;
      make_idle(client, now);
    } else if (client.connection.is_busy() &&
               now - client.connection.began_ns() > plan_.timeout_ns) {
      client.connection.close();
      --busy_;
      ++settled_count_;
      count_failure(client, now, Failure::kTimeout, "no reply in time");
      rest(client, now);
    }
  }
}

void LoadThread::open_window() {
  window_open_ = true;
  tally_.most_waiting = 0;
  cpu_at_begin_ns_ = thread_cpu_ns();
  polls_ = 0;
  empty_polls_ = 0;
  busy_ns_ = 0;
}

void LoadThread::close_window(uint64_t now) {
  if (!window_open_) return;
  const uint64_t cpu_ns = thread_cpu_ns() - cpu_at_begin_ns_;
  const double wall_ns = static_cast<double>(std::max<uint64_t>(now - begin_ns_, 1));
  tally_.cpu_seconds = static_cast<double>(cpu_ns) / 1e9;
  tally_.busiest_cpu = static_cast<double>(cpu_ns) / wall_ns;
  tally_.busiest_turns = static_cast<double>(busy_ns_) / wall_ns;
  if (polls_ > 0) {
    tally_.fewest_empty_polls = static_cast<double>(empty_polls_) / static_cast<double>(polls_);
  }
  uint64_t end_ns = total_count_ != 0 ? std::max(last_ns_, begin_ns_) : now;
  if (plan_.is_open_loop() && total_count_ == 0) {
    end_ns = std::min(now, end_ns_);
    count_waiting(now);
  }
  tally_.seconds = static_cast<double>(end_ns - begin_ns_) / 1e9;
  if (tally_.seconds > 0) {
    tally_.per_second = static_cast<double>(tally_.ok_count()) / tally_.seconds;
  }
}

// What never left, and what never came back, has waited at least until now: left out, the percentiles
// would get better the worse the server is.
void LoadThread::count_waiting(uint64_t now) {
  const uint64_t due = schedule_.due_count(std::min(now, end_ns_));
  for (uint64_t i = sent_count_; i < due; ++i) {
    ++tally_.unsent;
    tally_.latency.record(now - schedule_.due_ns(i));
  }
  for (const Client& client : clients_) {
    if (!client.connection.is_busy()) continue;
    ++tally_.unanswered;
    tally_.latency.record(now - client.intended_ns);
  }
}

}  // namespace lumen::load
