// ResponseCache: a step that answers a request from the answer of one like it, for models whose
// config.json has "response_cache": {"enable": true}. docs/adr/0013-response-cache.md tells why it
// is made so.
//
//   before()  stored: the call is done, its outputs lie in the store, held until the reply is out
//             runs now: parked until that run ends
//             neither: it runs, and leads those that come meanwhile
//   after()   ok: stores the outputs, and all that wait get them
//             else: one of those that wait runs in its place
//
// Each call keeps its own deadline and cancel. Data from a client's shared memory is copied before
// it is hashed (service/binder.h), and outputs are made in private memory and copied there.
//
// Threads: as Step says; add() and remove() on the control plane, while no request of the model is
// on the way.
// Memory: at add(), with the store's region of max_bytes; calls take from their own. Errors: add()
// says why there is no region; the data plane has none, an answer that can't be stored is run and
// counted.
#pragma once

#include <lumen/answers/keyed_hash.h>
#include <lumen/base/limits.h>
#include <lumen/service/dispatcher.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

namespace lumen::answers {

class ResponseCache final : public service::Step, public service::OutputsKeeper {
 public:
  // `calls`: that may be at work at once.
  explicit ResponseCache(size_t calls);
  ~ResponseCache();
  ResponseCache(const ResponseCache&) = delete;
  ResponseCache& operator=(const ResponseCache&) = delete;

  // Empty at first, also if a model before had the index: this one's answers are of a generation of
  // their own.
  [[nodiscard]] Status add(const models::Model& model);
  void remove(const models::Model& model) noexcept;

  [[nodiscard]] service::StepOutcome before(service::Call& call) noexcept override;
  void after(service::Call& call) noexcept override;
  [[nodiscard]] bool abandon(service::Call& call) noexcept override;
  void let_go(void* kept) noexcept override;

  // Of a model that has one; control plane.
  struct Usage {
    uint64_t bytes;  // of stored answers, with those that were evicted and are still read
    uint64_t max_bytes;
  };
  [[nodiscard]] std::optional<Usage> usage(const models::Model& model) const;
  // Nobody waits for another's run; for tests, while nothing goes on.
  [[nodiscard]] bool is_idle() const noexcept;

 private:
  struct OfModel;
  [[nodiscard]] OfModel* of(const service::Call& call) const noexcept;
  [[nodiscard]] bool answer(OfModel& model, service::Call& call, uint64_t now) noexcept;
  [[nodiscard]] service::StepOutcome join(OfModel& model, service::Call& call,
                                          uint64_t begun) noexcept;
  void store_and_share(OfModel& model, service::Call& leader) noexcept;

  const size_t calls_;
  const KeyedHash hash_;
  std::array<std::unique_ptr<OfModel>, limits::kMaxModels> models_;
  uint64_t generations_ = 0;
  mutable std::mutex mutex_;  // of the control plane
};

}  // namespace lumen::answers
