// SimClient: one client of a simulated world, as good and as bad as clients are: it sends in pieces, stops,
// pipelines, resets, hangs up, reads slowly; and it checks each reply to the byte.
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

namespace lumen::sim {

// Of all clients of a world.
struct Tally {
  uint64_t histories = 0;
  uint64_t replies_ok = 0;
  uint64_t replies_refused = 0;
  // The server had all of the request, the client had done nothing to stop the reply, and the connection ended.
  uint64_t unanswered = 0;
  uint64_t next_value = 1;  // no two requests hold the same
  bool draining = false;
  std::array<uint64_t, 600> by_status{};
  std::function<void()> look = [] {};  // at the memory, now and then
};

class SimClient {
 public:
  explicit SimClient(Tally& tally) : tally_(tally) {}
  void run(size_t histories);

 private:
  struct Asked {
    std::string reply_values;      // empty: a document
    size_t sent_bytes = SIZE_MAX;  // of the connection, when it was whole
    bool is_document = false;
  };

  [[nodiscard]] bool connect();
  void ask();
  void send_slowly(const std::string& text);
  // False: the connection is over.
  [[nodiscard]] bool read_reply();
  void check(const Asked& asked, const std::string& head, const std::string& body);
  void leave();

  Tally& tally_;
  std::shared_ptr<Wire> wire_;
  bool is_local_ = false;
  std::deque<Asked> asked_;
  size_t sent_bytes_ = 0;
  std::string unread_;
};

}  // namespace lumen::sim
