// BusLoad: some of a plan's clients of the bus (`lumen serve --bus PATH`), closed loop, several
// requests in flight each. The bus's LoadThread.
// Threads: run() on its own; tally() after it has been joined.
// Memory: connections before the window. Errors: never; failures are counted.
#pragma once

#include <lumen/client/load_plan.h>
#include <lumen/client/tally.h>

#include <lumen/base/idle_strategy.h>
#include <lumen/bus_client/infer_client.h>
#include <lumen/wire/bus_infer.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace lumen::client {

// A document of the server, waited for; its text, or why there is none.
[[nodiscard]] Result<std::string> fetch_over_bus(const Target& target, wire::BusVerb verb,
                                                 const std::string& model,
                                                 const std::string& version);

class BusLoad {
 public:
  // `index` of plan.threads threads; takes its share of clients and requests.
  BusLoad(const LoadPlan& plan, uint32_t index, const std::atomic<bool>& stop);

  void run(uint64_t start_ns);
  [[nodiscard]] const Tally& tally() const noexcept { return tally_; }

 private:
  // A place in a client's area, with the request that is in flight there.
  struct Slot {
    std::vector<wire::BusTensor> inputs;
    SequenceWalk walk{1, 0, 0, 1};
    uint64_t offset = 0;
    uint64_t sent_ns = 0;
    bool measured = false;
  };
  struct Client {
    explicit Client(bus_client::InferClient connected) : connection(std::move(connected)) {}
    bus_client::InferClient connection;
    uint64_t index = 0;  // of all clients of the plan
    std::vector<Slot> slots;
    uint64_t slot_bytes = 0;
    bool is_over = false;
  };

  bool connect_one(uint64_t now);
  bool probe_room(Client& client);
  void lay_out(Client& client);
  void write_inputs(Client& client, const Slot& slot);
  // None where the plan has no sequences.
  [[nodiscard]] wire::SequenceWishes next_of_sequence(Slot& slot) const noexcept;
  void send_one(Client& client, uint32_t slot, uint64_t now);
  size_t take_replies(Client& client);
  void count_reply(Client& client, const Slot& slot, const wire::BusReply& reply, uint64_t now);
  void count_failure(Failure failure, const std::string& text);
  void wait(uint64_t now);
  [[nodiscard]] bool is_over(uint64_t now) const noexcept;
  void open_window();
  void close_window(uint64_t now);

  const LoadPlan& plan_;
  const std::atomic<bool>& stop_;
  std::deque<Client> clients_;
  std::vector<bus::Subscriber*> rings_;
  IdleStrategy idle_{0};  // without --poll it sleeps at once, as the client of HTTP does
  Tally tally_;
  std::byte read_{};    // of all outputs, so that each byte is read
  uint32_t index_;      // of the plan's threads
  uint32_t share_ = 0;  // of the plan's clients
  VariantChooser chooser_;
  uint64_t room_bytes_ = 0;     // that the outputs of a request take
  uint64_t request_bytes_ = 0;  // of its inputs
  uint64_t warm_up_count_ = 0;  // this thread's share, where requests are counted out
  uint64_t total_count_ = 0;    // with the warm-up; 0: by time
  uint64_t sent_count_ = 0;
  uint64_t settled_count_ = 0;
  uint64_t begin_ns_ = 0;
  uint64_t end_ns_ = 0;
  uint64_t last_ns_ = 0;
  bool window_open_ = false;
  uint64_t cpu_at_begin_ns_ = 0;
  uint64_t looks_ = 0;
  uint64_t empty_looks_ = 0;
};

}  // namespace lumen::client
