// Sequences: a step for models that keep states ("sequences" in their config.json). It gives the
// requests of a sequence their turns, one after the other in the order in which they came, and each
// the memory of its sequence's states. docs/sequences.md tells what a client sees,
// docs/adr/0027-sequences.md why it is made so.
//
//   before()  the sequence is idle, or begins: on with it
//             another of its requests runs: parked until its turn
//             no such sequence is live: refused
//   after()   the turn is over: the next one's begins
//
// It is the last step before the engine: a request whose turn it is keeps all others of its
// sequence waiting.
//
// Threads: as Step says; add(), remove() and usage() on the control plane, the first two while no
// request of the model is on the way.
// Memory: at add(), of the live sequences that are allowed; its pages cost nothing until they are
// used. Errors: add() says why there is no memory, and then each request is refused.
#pragma once

#include <lumen/base/limits.h>
#include <lumen/service/dispatcher.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

namespace lumen::sequences {

class SequenceTable;

class Sequences final : public service::Step {
 public:
  // `calls`: that may be at work at once; `counters`: of all models.
  Sequences(size_t calls, telemetry::Counters& counters);
  ~Sequences();
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  [[nodiscard]] Status add(const models::Model& model);
  // Its sequences end.
  void remove(const models::Model& model) noexcept;

  [[nodiscard]] service::StepOutcome before(service::Call& call) noexcept override;
  void after(service::Call& call) noexcept override;
  [[nodiscard]] bool abandon(service::Call& call) noexcept override;

  struct Usage {
    uint64_t live;
    uint64_t most;
    uint64_t state_bytes;  // of the live ones
    uint64_t started;      // since the model was loaded
    uint64_t dropped;      // after their idle time
  };
  // Of a model that keeps states. Drops those that have been idle for too long.
  [[nodiscard]] std::optional<Usage> usage(const models::Model& model) const;
  // No request has a turn or waits for one; for tests, while nothing goes on.
  [[nodiscard]] bool is_idle() const noexcept;

 private:
  const size_t calls_;
  telemetry::Counters& counters_;
  std::array<std::unique_ptr<SequenceTable>, limits::kMaxModels> tables_;
  mutable std::mutex mutex_;  // of the control plane
};

}  // namespace lumen::sequences
