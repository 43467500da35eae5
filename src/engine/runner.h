// Runner: an instance of every model and the requests that wait for them. A worker's thread, or an
// I/O thread with the queue type `inline`, turns it over.
//
//   add() ─► waiting ─► run(): late? ─► room in the instance? ─► decide_batch() ─► start()
//                          │                                                     │  └ kPending ─► done()
//                        complete(504)                                        complete()
//
// One bad request must not fail its neighbours: the members of a batch that failed wait again, to
// be run alone.
//
// Threads: one owner; on_done() by any thread of a backend. Memory: all of it at construction and
// in set_up(); run() allocates nothing but from the requests' own memory. Errors: a request's
// failure in its status.
#pragma once

#include "engine/admission.h"
#include "engine/fair_shares.h"
#include "engine/instance_memory.h"
#include "engine/model_slot.h"

#include <lumen/base/cache_line.h>
#include <lumen/base/limits.h>
#include <lumen/models/infer_request.h>
#include <lumen/telemetry/counters.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lumen::engine {

// Told of each request that is complete, by the thread that completes it; each may be nullptr.
struct RunnerLoad {
  std::atomic<uint32_t>* outstanding = nullptr;  // requests given to this runner
  Admission* admission = nullptr;
  FairShares* shares = nullptr;            // of the workers' time, told the time of each call
  std::atomic<uint32_t>* heavy = nullptr;  // requests with is_heavy
};

class RoomListener {
 public:
  // A pending request is complete: there may be room again, or nothing left. Any thread.
  virtual void on_room() noexcept = 0;

 protected:
  ~RoomListener() = default;
};

struct RunnerOptions {
  uint32_t index = 0;  // of its worker or I/O thread
  EngineConfig config;
  size_t capacity = 1;  // requests that may wait here
  RunnerLoad load;
  RegionOptions regions{};
  RoomListener* listener = nullptr;
  telemetry::Counters* counters = nullptr;  // never nullptr
};

class Runner {
 public:
  // A model whose instance can't be made either becomes unavailable (at start) or fails the whole.
  enum class OnFailure : uint8_t { kMarkUnavailable, kFail };

  explicit Runner(const RunnerOptions& options);
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Control plane, while none of these models' requests can come: an instance of each is to be
  // made.
  void expect_instances(std::span<models::Model* const> models);
  // Then makes that of the `index`-th of them. Several threads at once, for this and other runners,
  // all with one `memory`. `config`: the runner's own, or with another queue type where a model is
  // to be packed.
  void make_instance(size_t index, SharedInstances& shared, InstanceMemory& memory,
                     const EngineConfig& config);
  // Then, one runner at a time while nothing compiles: measures, and settles failures. The runner
  // may be at work with other models.
  [[nodiscard]] Status set_up(InstanceMemory& memory, OnFailure on_failure);
  // Control plane, between set_up() and the first request of `model`: pack_slot() of its slot.
  [[nodiscard]] Status pack(const models::Model& model, InstanceMemory& memory);
  // Control plane, once every request of `model` is complete and no other can come.
  void remove(const models::Model& model) noexcept;

  // How many more requests may wait here.
  [[nodiscard]] size_t room() const noexcept {
    return options_.capacity - std::min(waiting_.size(), options_.capacity);
  }
  [[nodiscard]] bool has_space() const noexcept { return room() > 0; }
  // Of a model whose requests may come: its slot stays as it is until they are complete.
  [[nodiscard]] bool has_instance(const models::Model& model) const noexcept {
    const std::unique_ptr<ModelSlot>& slot = slots_[model.index()];
    return slot != nullptr && slot->instance != nullptr;
  }
  // Control plane: the slot of a model that has an instance here, else nullptr.
  [[nodiscard]] const ModelSlot* slot(const models::Model& model) const noexcept {
    return has_instance(model) ? slots_[model.index()].get() : nullptr;
  }
  [[nodiscard]] bool gathers(const models::Model& model) const noexcept {
    return has_instance(model) && slots_[model.index()]->gathers;
  }
  // True: others may still join it in one call, so it is worth taking another before run().
  bool add(models::InferRequest& request) noexcept;
  // Over the waiting requests, the oldest first: answers late ones, starts those that can start.
  // Returns for how many requests. kOneCall ends after the first call of a model.
  enum class Pass : uint8_t { kAll, kOneCall };
  size_t run(Pass pass = Pass::kAll) noexcept;
  // Tells the sinks of completed requests; before the owner waits for anything, or turns to other
  // work.
  void wake_sinks() noexcept;

  // Of the thread that turns it.
  [[nodiscard]] telemetry::CounterWriter& counters() noexcept { return counters_; }
  [[nodiscard]] bool has_waiting() const noexcept { return !waiting_.empty(); }
  // When run() may have something to do by the clock alone; UINT64_MAX: never.
  [[nodiscard]] uint64_t next_ns() const noexcept;
  // Requests that came back from backends' threads since run() last looked.
  [[nodiscard]] bool has_news() const noexcept;
  // Calls that backends' threads have brought back so far; waits until there are more than `seen`.
  [[nodiscard]] uint64_t completions() const noexcept;
  void wait_for_completion(uint64_t seen) const noexcept;
  // Nothing waits, nothing is in flight, and no backend's thread is inside on_done().
  [[nodiscard]] bool is_done() const noexcept;

 private:
  void start_with(size_t first, uint64_t now) noexcept;
  [[nodiscard]] BatchDecision decide(size_t first, const ModelSlot& slot, uint64_t now) noexcept;
  [[nodiscard]] static models::StartOutcome start(
      ModelSlot& slot, models::InferRequest& request,
      void (*done)(models::InferRequest&) noexcept) noexcept;
  void start_one(models::InferRequest& request, ModelSlot& slot, uint64_t now) noexcept;
  void leave_queue(models::InferRequest& request, uint64_t now) noexcept;
  void start_batch(size_t count, uint32_t rows, ModelSlot& slot, uint64_t now) noexcept;
  void note_pending() noexcept;
  void finish_batch(BatchPlace& place) noexcept;
  void take_back_failed_batches() noexcept;
  [[nodiscard]] bool has_failed_batch() const noexcept;
  [[nodiscard]] ModelSlot& slot_of(const models::InferRequest& request) noexcept {
    return *slots_[request.model->index()];
  }
  void refuse_late(models::InferRequest& request, uint64_t now) noexcept;
  void refuse(models::InferRequest& request, const Status& status, uint64_t now) noexcept;
  void finish(models::InferRequest& request, uint64_t run_rows,
              telemetry::CounterWriter& counters) noexcept;
  void finish_elsewhere(models::InferRequest& request, uint64_t run_rows) noexcept;
  // `ns`: by the clock; `used_ns`: of the CPU.
  void note_service(ModelSlot& slot, uint64_t ns, uint64_t used_ns,
                    std::span<models::InferRequest* const> requests) noexcept;
  void note_pending_service(ModelSlot& slot,
                            std::span<models::InferRequest* const> requests) noexcept;
  void settle_share(const ModelSlot& slot, uint64_t ns,
                    std::span<models::InferRequest* const> requests) const noexcept;
  void note_sink(models::CompletionSink* sink, uint64_t now) noexcept;
  static void on_done(models::InferRequest& request) noexcept;
  static void on_batch_done(models::InferRequest& packed) noexcept;
  void leave_callback(ModelSlot* slot) noexcept;

  const RunnerOptions options_;
  telemetry::CounterWriter counters_;  // a backend's threads have others
  // By Model::index(). Each is touched by the control plane, or by the runner and backends' threads
  // for a request of its model, and never by both at once; so models come and go while others run.
  std::vector<std::unique_ptr<ModelSlot>> slots_;
  struct Made {
    models::Model* model = nullptr;
    EngineConfig config;
    std::unique_ptr<ModelSlot> slot;
    Status status;
  };
  std::vector<Made> made_;  // between expect_instances() and set_up()
  // The first priority first, in it the oldest; reserved for `capacity` and for one failed batch
  // that comes back.
  std::vector<models::InferRequest*> waiting_;
  std::vector<size_t> candidates_;  // places in waiting_ that may share a call
  std::vector<uint32_t> candidate_rows_;
  std::vector<models::InferRequest*> members_;
  const models::InferRequest* gather_first_ =
      nullptr;                // since run(): the request that later ones may join
  uint64_t gather_rows_ = 0;  // of it and of those that have joined
  uint64_t pass_ = 0;
  uint64_t hold_until_ns_ = UINT64_MAX;  // a batch that waits for more rows

  // Sinks that have completions they were not told of, since when.
  std::array<models::CompletionSink*, limits::kMaxSubmitters> waiting_sinks_{};
  size_t waiting_sink_count_ = 0;
  uint64_t waiting_sinks_since_ns_ = 0;

  BatchPlace* failed_here_ = nullptr;  // failed batches that wait until waiting_ has room for them
  // Written by backends' threads: completions that run() has not looked at yet, calls that are not
  // back, batches that failed, and how many threads are inside on_done() (their last write).
  uint64_t completions_seen_ = 0;
  alignas(kFalseSharingRange) std::atomic<uint64_t> completions_{0};
  std::atomic<uint32_t> pending_{0};
  std::atomic<BatchPlace*> failed_{nullptr};
  std::atomic<uint32_t> callbacks_inside_{0};
};

}  // namespace lumen::engine
