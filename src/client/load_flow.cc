// The work of a flow's clients. Its load thread; no allocation for a reply; failures are counted.
#include "client/load_flow.h"

#include "client/thread_share.h"

#include <lumen/base/clock.h>

#include <algorithm>
#include <string>

namespace lumen::client {

namespace {

// A client that failed tries again this much later, and requests are looked at for their timeout.
constexpr uint64_t kRestNs = 10'000'000u;
constexpr uint64_t kLongestRestS = 3'600;
constexpr uint64_t kTickNs = 100'000'000u;
// Open loop: how long after its end a run waits for replies that are under way.
constexpr uint64_t kGraceNs = 1'000'000'000u;

std::vector<double> weights_of(const LoadPlan& plan) {
  std::vector<double> weights;
  weights.reserve(plan.mix.size() + 1);
  for (const MixedRequest& one : plan.mix) weights.push_back(one.weight);
  if (weights.empty()) weights.push_back(1);
  return weights;
}

}  // namespace

LoadFlow::LoadFlow(const LoadPlan& plan, uint32_t index, uint32_t threads, int epoll_fd,
                   ThreadUse& use)
    : plan_(plan),
      use_(use),
      random_(index + 1),
      chooser_(plan.repeat_ratio, VariantChooser::some_first()),
      choice_(weights_of(plan), index) {
  for (const MixedRequest& one : plan.mix) parts_.emplace_back(one.request);
  if (parts_.empty()) parts_.emplace_back(plan.request);
  const uint64_t clients = share(plan.clients, threads, index);
  for (uint64_t i = 0; i < clients; ++i) {
    clients_.emplace_back(*this, plan, epoll_fd, index + i * threads);
  }
  idle_.reserve(clients);
  if (plan.requests != 0) {
    warm_up_count_ = share(plan.warm_up_requests, threads, index);
    total_count_ = warm_up_count_ + share(plan.requests, threads, index);
  }
  if (plan.is_open_loop()) {
    rate_ = plan.rate * static_cast<double>(clients) / plan.clients;
    phase_ = static_cast<double>(index) / threads;
  }
}

void LoadFlow::begin(uint64_t start_ns, uint64_t now) {
  next_tick_ns_ = start_ns + kTickNs;
  if (plan_.is_open_loop()) schedule_ = Schedule(start_ns, rate_, phase_);
  if (total_count_ == 0) {
    begin_ns_ = start_ns + plan_.warm_up_ns;
    end_ns_ = begin_ns_ + plan_.duration_ns;
  }
  for (Client& client : clients_) make_idle(client, now);
}

bool LoadFlow::turn(uint64_t now) {
  if (is_closed_) return false;
  if (is_over(now)) {
    close(now);
    return false;
  }
  if (!window_open_ && begin_ns_ != 0 && now >= begin_ns_) open_window();
  if (plan_.is_open_loop()) dispatch_due(now);
  return true;
}

void LoadFlow::advance(Client& client) {
  const bool was_asked = client.connection.is_busy();
  const Step step = client.connection.advance();
  if (was_asked && step != Step::kPending && !is_closed_) settle(client, step);
}

bool LoadFlow::is_over(uint64_t now) const noexcept {
  if (clients_.empty()) return true;
  if (total_count_ != 0) return settled_count_ == total_count_;
  if (now < end_ns_) return false;
  return !plan_.is_open_loop() || busy_ == 0 || now >= end_ns_ + kGraceNs;
}

bool LoadFlow::in_window(const Client& client, uint64_t now) const noexcept {
  // By time, replies that come back in the window count, even if they were due before: a server
  // that has fallen behind in the warm-up goes on answering late requests.
  return total_count_ != 0 ? client.measured : now >= begin_ns_;
}

uint64_t LoadFlow::wake_ns(uint64_t now) const noexcept {
  if (is_closed_) return UINT64_MAX;
  uint64_t until_ns = next_tick_ns_;
  if (end_ns_ > now) until_ns = std::min(until_ns, end_ns_);
  if (!window_open_ && begin_ns_ > now) until_ns = std::min(until_ns, begin_ns_);
  if (plan_.is_open_loop() && !idle_.empty()) {
    const uint64_t due_ns = schedule_.due_ns(sent_count_);
    const bool is_wanted = total_count_ == 0 ? due_ns < end_ns_ : sent_count_ < total_count_;
    if (is_wanted) until_ns = std::min(until_ns, due_ns);
  }
  return until_ns;
}

void LoadFlow::make_idle(Client& client, uint64_t now) {
  if (!plan_.is_open_loop()) return start_closed(client, now);
  client.idle_since_ns = now;
  idle_.push_back(&client);
}

void LoadFlow::start_closed(Client& client, uint64_t now) {
  if (total_count_ != 0 && sent_count_ == total_count_) return;
  send_one(client, sent_count_, now);
}

void LoadFlow::dispatch_due(uint64_t now) {
  const uint64_t limit_ns = total_count_ == 0 ? std::min(now, end_ns_) : now;
  Tally& tally = parts_.front().tally;
  while (!idle_.empty() && (total_count_ == 0 || sent_count_ < total_count_)) {
    const uint64_t due_ns = schedule_.due_ns(sent_count_);
    if (due_ns >= limit_ns) break;
    // Nobody could have sent it earlier unless a client was idle when it fell due.
    const bool could_have = idle_.front()->idle_since_ns < due_ns;
    Client& client = *idle_.back();
    idle_.pop_back();
    client.intended_ns = due_ns;
    if (could_have && due_ns >= begin_ns_) tally.send_lag.record(now - due_ns);
    send_one(client, sent_count_, now);
  }
  uint64_t due = schedule_.due_count(limit_ns);
  if (total_count_ != 0) due = std::min(due, total_count_);
  if (due > sent_count_) tally.most_waiting = std::max(tally.most_waiting, due - sent_count_);
}

void LoadFlow::send_one(Client& client, uint64_t sequence, uint64_t now) {
  client.measured = total_count_ == 0 || sequence >= warm_up_count_;
  const bool warms_up = total_count_ != 0 ? !client.measured : now < begin_ns_;
  if (total_count_ != 0 && client.measured && begin_ns_ == 0) {
    begin_ns_ = plan_.is_open_loop() ? client.intended_ns : now;
    open_window();
  }
  ++sent_count_;
  ++busy_;
  if (parts_.size() > 1) client.part = choice_.next();
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

std::string_view LoadFlow::request_of(Client& client, bool warms_up) noexcept {
  if (plan_.variants) {
    plan_.variants->write(chooser_.next(), client.request.data() + plan_.varied_at);
  }
  if (plan_.sequence_length > 0) {
    plan_.sequence_places.write(client.walk.next(), client.request.data());
  }
  if (plan_.has_many_requests()) return client.request;
  const bool other = warms_up && !plan_.warm_up_request.empty();
  return other ? plan_.warm_up_request : parts_[client.part].request;
}

void LoadFlow::settle(Client& client, Step step) {
  const uint64_t now = now_ns();
  --busy_;
  ++settled_count_;
  if (step == Step::kFailed) {
    count_failure(client, now, client.connection.failure(), client.connection.error_text());
    return rest(client, now + kRestNs);
  }
  count_reply(client, now);
  if (client.connection.status() != 200) client.walk.begin_another();
  if (plan_.new_connection) client.connection.close();
  if (const uint64_t wait_ns = told_to_wait_ns(client); wait_ns > 0) {
    return rest(client, now + wait_ns);
  }
  make_idle(client, now);
}

// Up to half as long again as told, by chance: clients that were refused together must not come
// back together.
uint64_t LoadFlow::told_to_wait_ns(const Client& client) noexcept {
  if (!plan_.obey_retry_after || plan_.is_open_loop() || client.connection.status() == 200)
    return 0;
  const uint64_t told_s = std::min(client.connection.retry_after_s().value_or(0), kLongestRestS);
  return told_s * (1'000'000'000u + random_() % 500'000'000u);
}

// A client rests when its request was not answered as it should be.
void LoadFlow::rest(Client& client, uint64_t until_ns) {
  client.walk.begin_another();
  client.resting_until_ns = until_ns;
  next_tick_ns_ = std::min(next_tick_ns_, until_ns);
}

void LoadFlow::count_reply(const Client& client, uint64_t now) {
  const ClientConnection& connection = client.connection;
  Tally& tally = tally_of(client);
  const bool counts = in_window(client, now);
  if (connection.connected_anew() && (counts || !plan_.new_connection)) {
    tally.connect.record(connection.connected_ns() - connection.began_ns());
  }
  if (!counts) return;
  last_ns_ = now;
  ++tally.by_status[static_cast<size_t>(connection.status())];
  tally.bytes_sent += parts_[client.part].request.size();
  tally.bytes_received += connection.reply_bytes();
  if (connection.status() != 200) {
    if (tally.first_error.empty()) {
      tally.first_error = connection.reply_start().substr(0, kErrorTextBytes);
    }
    return;
  }
  uint64_t from_ns = plan_.new_connection ? connection.began_ns() : connection.connected_ns();
  if (plan_.is_open_loop()) from_ns = client.intended_ns;
  tally.latency.record(now - from_ns);
  tally.shortest_reply = std::min(tally.shortest_reply, connection.reply_bytes());
  tally.longest_reply = std::max(tally.longest_reply, connection.reply_bytes());
}

void LoadFlow::count_failure(const Client& client, uint64_t now, Failure failure,
                             const std::string& text) {
  if (!in_window(client, now)) return;
  last_ns_ = now;
  Tally& tally = tally_of(client);
  ++tally.failures[static_cast<size_t>(failure)];
  if (tally.first_error.empty()) tally.first_error = text;
}

void LoadFlow::tick(uint64_t now) {
  if (is_closed_ || now < next_tick_ns_) return;
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

void LoadFlow::open_window() {
  window_open_ = true;
  parts_.front().tally.most_waiting = 0;
  use_.open(begin_ns_);
}

void LoadFlow::close(uint64_t now) {
  if (is_closed_) return;
  is_closed_ = true;
  if (!window_open_) return;
  uint64_t end_ns = total_count_ != 0 ? std::max(last_ns_, begin_ns_) : now;
  if (plan_.is_open_loop() && total_count_ == 0) {
    end_ns = std::min(now, end_ns_);
    count_waiting(now);
  }
  const double seconds = static_cast<double>(end_ns - begin_ns_) / 1e9;
  for (Part& part : parts_) {
    part.tally.seconds = seconds;
    if (seconds > 0) part.tally.per_second = static_cast<double>(part.tally.ok_count()) / seconds;
  }
}

// Requests that never left, and replies that never came back, have waited at least until now: left
// out, the percentiles would get better the worse the server is.
void LoadFlow::count_waiting(uint64_t now) {
  const uint64_t due = schedule_.due_count(std::min(now, end_ns_));
  Tally& tally = parts_.front().tally;
  for (uint64_t i = sent_count_; i < due; ++i) {
    ++tally.unsent;
    tally.latency.record(now - schedule_.due_ns(i));
  }
  for (const Client& client : clients_) {
    if (!client.connection.is_busy()) continue;
    ++tally.unanswered;
    tally.latency.record(now - client.intended_ns);
  }
}

}  // namespace lumen::client
