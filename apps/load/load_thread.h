// LoadThread: some of a plan's clients in one epoll loop, closed or open.
// Threads: run() on its own thread; tally() after it has been joined.
// Memory: connections and tally before run(); nothing for a reply, a text for the first error.
// Errors: never; what fails is counted.
#pragma once

#include "load/client_connection.h"
#include "load/load_plan.h"
#include "load/schedule.h"
#include "load/tally.h"

#include <lumen/base/unique_fd.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::load {

class LoadThread {
 public:
  // `index` of plan.threads threads; takes its share of clients, requests and rate.
  LoadThread(const LoadPlan& plan, uint32_t index, const std::atomic<bool>& stop);

  void run(uint64_t start_ns);
  [[nodiscard]] const Tally& tally() const noexcept { return tally_; }

 private:
  struct Client {
    Client(const LoadPlan& plan, int epoll_fd)
        : connection(plan.target, epoll_fd, this, plan.timeout_ns) {
      if (plan.variants) request = plan.request;
    }
    ClientConnection connection;
    std::string request;         // where inputs vary
    uint64_t intended_ns = 0;    // open loop
    uint64_t idle_since_ns = 0;  // open loop
    bool measured = false;       // where requests are counted out
    // Not 0: does nothing until then, because it failed (lest a dead server be hammered) or was told.
    uint64_t resting_until_ns = 0;
  };

  [[nodiscard]] bool is_over(uint64_t now) const noexcept;
  [[nodiscard]] bool in_window(const Client& client, uint64_t now) const noexcept;
  [[nodiscard]] timespec time_to_sleep(uint64_t now) const noexcept;
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
  void tick(uint64_t now);
  void open_window();
  void close_window(uint64_t now);
  void count_waiting(uint64_t now);

  const LoadPlan& plan_;
  const std::atomic<bool>& stop_;
  UniqueFd epoll_;
  std::deque<Client> clients_;  // epoll points at them: they don't move
  std::vector<Client*> idle_;   // open loop; the longest idle first
  double rate_ = 0;             // this thread's part
  double phase_ = 0;
  Schedule schedule_;
  std::minstd_rand random_;
  VariantChooser chooser_;
  size_t inputs_at_ = 0;  // in a request, where inputs vary
  Tally tally_;

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
  uint64_t cpu_at_begin_ns_ = 0;
  uint64_t polls_ = 0;
  uint64_t empty_polls_ = 0;
  uint64_t busy_ns_ = 0;
};

}  // namespace lumen::load
