// LoadFlow: the clients that a load thread has of one plan, closed or open loop: their requests,
// the times at which they send them, and the results. A thread may have several, which wait for
// nothing of each other.
// Threads: its load thread alone; tallies after it has been joined.
// Memory: connections and tallies when it is made; nothing for a reply, a text for the first error.
// Errors: never; failures are counted.
#pragma once

#include <lumen/client/client_connection.h>
#include <lumen/client/load_plan.h>
#include <lumen/client/tally.h>
#include "client/schedule.h"
#include "client/thread_use.h"
#include "client/weighted_choice.h"

#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::client {

class LoadFlow {
 public:
  struct Client {
    Client(LoadFlow& owner, const LoadPlan& plan, int epoll_fd, uint64_t index)
        : flow(&owner),
          connection(plan.target, epoll_fd, this, plan.timeout_ns),
          walk(plan.sequence_length, plan.first_sequence, index, plan.clients) {
      if (plan.has_many_requests()) request = plan.request;
    }
    LoadFlow* flow;
    ClientConnection connection;
    std::string request;  // where inputs vary, or sequences
    SequenceWalk walk;
    size_t part = 0;             // its last request: an index of parts_
    uint64_t intended_ns = 0;    // open loop
    uint64_t idle_since_ns = 0;  // open loop
    bool measured = false;       // where requests are counted out
    // Not 0: does nothing until then, because it failed (lest a dead server be hammered) or was
    // told.
    uint64_t resting_until_ns = 0;
  };

  // `index` of `threads` threads; takes its share of clients, requests and rate. It does not move:
  // epoll's events point at its clients.
  LoadFlow(const LoadPlan& plan, uint32_t index, uint32_t threads, int epoll_fd, ThreadUse& use);
  LoadFlow(const LoadFlow&) = delete;
  LoadFlow& operator=(const LoadFlow&) = delete;

  void begin(uint64_t start_ns, uint64_t now);
  // Opens or closes its window, sends the requests that are due. False once it is over.
  [[nodiscard]] bool turn(uint64_t now);
  // The next time at which turn() or tick() has something to do.
  [[nodiscard]] uint64_t wake_ns(uint64_t now) const noexcept;
  // Epoll reported the connection of a client of this flow.
  void advance(Client& client);
  // Clients that rested long enough go on, and requests that took too long are given up.
  void tick(uint64_t now);
  void close(uint64_t now);

  // One for each request of plan.mix, or one.
  [[nodiscard]] size_t parts() const noexcept { return parts_.size(); }
  [[nodiscard]] const Tally& tally(size_t part) const noexcept { return parts_[part].tally; }

 private:
  struct Part {
    explicit Part(std::string_view bytes) : request(bytes) {}
    std::string_view request;
    Tally tally;
  };

  [[nodiscard]] bool is_over(uint64_t now) const noexcept;
  [[nodiscard]] bool in_window(const Client& client, uint64_t now) const noexcept;
  void make_idle(Client& client, uint64_t now);
  void start_closed(Client& client, uint64_t now);
  void dispatch_due(uint64_t now);
  void send_one(Client& client, uint64_t sequence, uint64_t now);
  [[nodiscard]] std::string_view request_of(Client& client, bool warms_up) noexcept;
  void settle(Client& client, Step step);
  void rest(Client& client, uint64_t until_ns);
  [[nodiscard]] uint64_t told_to_wait_ns(const Client& client) noexcept;
  void count_reply(const Client& client, uint64_t now);
  void count_failure(const Client& client, uint64_t now, Failure failure, const std::string& text);
  void open_window();
  void count_waiting(uint64_t now);
  [[nodiscard]] Tally& tally_of(const Client& client) noexcept { return parts_[client.part].tally; }

  const LoadPlan& plan_;
  ThreadUse& use_;
  std::deque<Client> clients_;  // epoll points at them: they don't move
  std::vector<Client*> idle_;   // open loop; the longest idle first
  double rate_ = 0;             // this thread's part
  double phase_ = 0;
  Schedule schedule_;
  std::minstd_rand random_;
  VariantChooser chooser_;
  WeightedChoice choice_;
  std::deque<Part> parts_;

  uint64_t warm_up_count_ = 0;  // this thread's share, where requests are counted out
  uint64_t total_count_ = 0;    // with the warm-up; 0: by time
  uint64_t sent_count_ = 0;
  uint64_t settled_count_ = 0;
  size_t busy_ = 0;

  uint64_t begin_ns_ = 0;  // of the window; where requests are counted out, when the first left
  uint64_t end_ns_ = 0;    // by time
  uint64_t last_ns_ = 0;   // the last counted reply
  uint64_t next_tick_ns_ = 0;
  bool window_open_ = false;
  bool is_closed_ = false;
};

}  // namespace lumen::client
