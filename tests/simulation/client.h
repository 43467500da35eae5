// SimClient: one client of a simulated world, as good and as bad as clients are: it sends in
// pieces, stops, pipelines, resets, hangs up, reads slowly; and it checks each reply to the byte.
// Threads: a fiber. Memory: the heap. Errors: a reply that can't be right ends the world.
#pragma once

#include "simulation/fibers.h"
#include "simulation/network.h"

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lumen::sim {

// The model that comes and goes: between two equal numbers of changes it was there, or was not.
struct Presence {
  enum class Is : uint8_t { kThere, kChanging, kGone };
  Is is = Is::kThere;
  uint64_t changes = 0;
  void become(Is next) {
    is = next;
    ++changes;
  }
};

// Of all clients of a world.
struct Tally {
  uint64_t histories = 0;
  uint64_t replies_ok = 0;
  uint64_t replies_refused = 0;
  // The server had all of the request, the client had done nothing to stop the reply, and the
  // connection ended.
  uint64_t unanswered = 0;
  uint64_t failures = 0;           // runs that were to fail, and did
  uint64_t not_there = 0;          // requests to the model that had gone
  uint64_t compressed = 0;         // replies
  uint64_t streams = 0;            // requests over HTTP/2
  uint64_t calls = 0;              // of these, calls of gRPC
  uint64_t streams_refused = 0;    // that the server has ended without a reply
  uint64_t sequence_replies = 0;   // of requests of a sequence, but those that begin one
  uint64_t sequences_refused = 0;  // those that are not live
  uint64_t next_sequence = 1;      // no two clients have the same, but for the shared one
  uint64_t next_value = 1;  // no two requests hold the same, but where they repeat each other
  bool repeats = false;
  size_t large_one_in = 150;  // requests
  // Replies hold each row of their request so often. Above 1 requests are small and stand whole in
  // one segment as a rule, and clients break off more often: with half a request, an end, a reset.
  size_t reply_repeats = 1;
  bool draining = false;
  Presence presence;
  std::array<uint64_t, 600> by_status{};
  std::function<void()> look = [] {};  // at the memory, now and then
};

class SimClient {
 public:
  explicit SimClient(Tally& tally) : tally_(tally) {}
  void run(size_t histories);

 protected:
  struct Asked {
    std::string model;         // empty: a document
    std::string id;            // that no other request has
    std::string reply_values;  // empty: it is to fail
    std::string failure;       // with this
    Presence presence;         // when it was asked
    // Of a request of a sequence: its own, whose sums this client knows, or one that all share,
    // where each request starts and ends it.
    struct Place {
      uint64_t sequence = 0;
      bool starts = false;
      bool ends = false;
    } place{};
    std::vector<float> values;     // that it sent
    size_t sent_bytes = SIZE_MAX;  // of the connection, when it was whole
  };

  [[nodiscard]] bool connect();
  std::string some_document();
  std::string some_inference(Asked& asked);
  // A model, an id and values, for a request of any protocol; then the reply that it is to have.
  std::vector<float> some_request(Asked& asked);
  void expect_reply(Asked& asked, std::vector<float> values);
  std::vector<float> some_values();
  std::string some_inference_of_a_sequence(Asked& asked);
  void send_slowly(const std::string& text);
  void check(const Asked& asked, const std::string& head, const std::string& body);
  void leave();

  Tally& tally_;
  std::shared_ptr<Wire> wire_;
  std::deque<Asked> asked_;
  size_t sent_bytes_ = 0;
  bool answers_in_order_ = true;  // else it sends requests of the shared sequence alone

 private:
  void ask();
  // Bytes of a next request that never becomes whole, an end or a reset, at any state of the
  // server.
  void break_off();
  // False: the connection is over.
  [[nodiscard]] bool read_reply();
  void check_inference(const Asked& asked, int status, const std::string& body);
  void check_sequence(const Asked& asked, int status, const std::string& body);
  void check_names(const Asked& asked, const std::string& body, const std::string& values);

  bool is_local_ = false;
  uint64_t sequence_ = 0;   // 0: none; of this connection
  uint64_t sums_of_ = 0;    // the sequence that the last reply was of
  std::vector<float> sum_;  // of that, as the replies tell; empty: it is not live
  bool sum_is_known_ = true;
  std::string unread_;
};

}  // namespace lumen::sim
