// EnsembleRun: one call of an ensemble while its steps run. Each step is a request of its own to
// the engine, with the lane, the queue and the counters of its model. Its inputs are the tensors
// that the steps before it have made, where they lie; the memory is the call's.
//
//   I/O thread                                     the thread that runs a step
//     go_on(): steps that wait for nothing ──────►   step
//                                                    returned(): its bit in returned_; the thread
//     Dispatcher::take_back()  ◄─── on_returned() ───  that finds no other bit there tells the owner
//     go_on(): takes all bits; the next steps, or false: the end
//
// tests/spin/ensemble.pml is the protocol, statement by statement.
//
// Steps that run at the same time need memory at the same time, and memory has one owner at a time.
// A step whose outputs have known sizes gets a block for them before it begins; another step runs
// while no other one does.
//
// Threads: the call's I/O thread. Memory: the call's scratch. Errors: the call's infer.status.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/models/ensemble.h>
#include <lumen/models/infer_request.h>
#include <lumen/service/call.h>
#include <lumen/telemetry/counters.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lumen::engine {
class Submitter;
}

namespace lumen::service {

// Gives out the bytes of one block.
class BlockAllocator final : public Allocator {
 public:
  void use(std::span<std::byte> block) noexcept { rest_ = block; }
  [[nodiscard]] void* allocate(size_t bytes, size_t alignment) noexcept override;

 private:
  std::span<std::byte> rest_;
};

class EnsembleRun {
 public:
  // For a call that is bound, and whose model is an ensemble. nullptr: its scratch has no room.
  [[nodiscard]] static EnsembleRun* create(Call& call, engine::Submitter& submitter,
                                           models::CompletionSink& sink,
                                           telemetry::CounterWriter& counters) noexcept;
  EnsembleRun(const EnsembleRun&) = delete;
  EnsembleRun& operator=(const EnsembleRun&) = delete;

  // Takes the steps that have returned, and submits those that can run now. True: steps are away,
  // and the call's owner is told when one returns. False: end() it.
  [[nodiscard]] bool go_on() noexcept;
  // Steps that have not begun are not run. Those that are away return all the same.
  void cancel() noexcept;
  // The call gets its status, its times and its outputs; the run is no more.
  void end() noexcept;

 private:
  struct Step {
    models::InferRequest infer{};
    EnsembleRun* run = nullptr;
    BlockAllocator data{};   // for outputs
    BlockAllocator lists{};  // for the list of them
  };

  EnsembleRun(Call& call, engine::Submitter& submitter, models::CompletionSink& sink,
              telemetry::CounterWriter& counters) noexcept;
  [[nodiscard]] bool make_lists() noexcept;
  void returned(const Step& step) noexcept;
  void take(size_t number) noexcept;
  void start_ready() noexcept;
  [[nodiscard]] uint64_t ready_steps() const noexcept;
  [[nodiscard]] bool is_for_reply(const models::EnsemblePlan::Step& planned) const noexcept;
  [[nodiscard]] Status gather_inputs(size_t number) noexcept;
  // False: the sizes of its outputs are not known, or there is no room for them.
  [[nodiscard]] bool give_block(size_t number) noexcept;
  void start(size_t number, bool has_block) noexcept;
  void submit(size_t number) noexcept;
  void fail(const Status& status) noexcept;

  Call& call_;
  const models::EnsemblePlan& plan_;
  engine::Submitter& submitter_;
  models::CompletionSink& sink_;
  telemetry::CounterWriter& counters_;
  std::span<Step> steps_{};
  std::span<TensorView> tensors_{};
  std::span<TensorView> outputs_{};  // of the call
  std::span<bool> wanted_{};         // tensors
  std::span<StepRun> runs_{};        // of steps that have returned
  size_t run_count_ = 0;
  Status status_{};
  // Bits of steps.
  uint64_t needed_ = 0;
  uint64_t started_ = 0;
  uint64_t done_ = 0;
  uint64_t away_ = 0;
  bool is_alone_ = false;  // the step that is away has the call's memory
  std::atomic<uint64_t> returned_{0};
};

}  // namespace lumen::service
