// ThreadPipeline: items pass through stages of one ring, each stage with its own threads. A part of
// the toolkit: the server itself does not use it.
// Threads: a Producer handle each pushing thread; handlers on the stages' own threads; close() any.
// Memory: the ring and a gate a stage, at construction.
// Errors: try_push is false when full or closed.
//
//   producers --push--> [ring of slots] <-- stage 0 <-- stage 1 <-- ... <-- last stage, frees slots
//   tail (claimed)        gate of the producers -> gate of stage 0 -> ... -> gate of the last stage
//
// An item stays in its slot from push to the end of the last stage: ownership travels by position,
// nothing is copied between stages. Each stage takes positions in order (a thread's batch is a run
// of them), each position once; stage s + 1 gets a position when the gate of stage s says that it
// is done. Topology is fixed at compile time: Stage<Handler, threads, batch limit>. A handler takes
// T& or, for a whole batch, std::span<T>; it must be noexcept; one object serves all threads of its
// stage.
//
// Waiting is in one place (waiting_place.h). A stage with nothing in flight before it sleeps in
// class kIdle: a push wakes all of those at once, so that a later stage is awake by the time the
// item reaches it, and no stage pays a system call to wake the next. A stage whose predecessor is
// slow (longer than IdleStrategy would spin) sleeps in its own class, and only then does the
// predecessor's publication make a futex call. Only the last stage wakes producers.
// tests/spin/pipeline.pml. Cost of a publication with nobody asleep: one exchange and one load of a
// shared line, a batch.
//
// close(): no push succeeds; accepted items pass through all stages; the threads end. The top bit
// of tail is `closed`, so an accepted item can't be lost to a racing close().
// A thread held (or dead) inside a handler holds its own batch: later stages stop at it, other
// threads of its stage go on for at most one lap of the ring, producers then see it full. So does a
// producer that is held between its claim and its publication. Nothing is torn, and all goes on
// when it does.
#pragma once

#include <lumen/base/backoff.h>
#include <lumen/base/idle_strategy.h>
#include <lumen/queue/pipeline_gates.h>
#include <lumen/queue/queue_types.h>
#include <lumen/queue/waiting_place.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <thread>
#include <tuple>
#include <type_traits>
#include <vector>

namespace lumen {

enum class Producers : uint8_t { kOne, kMany };
// kEveryStage: each stage wakes only the next, by a system call each time; for ADR 0008's A/B.
enum class PipelineWake : uint8_t { kLastStage, kEveryStage };

struct PipelineOptions {
  size_t capacity = 1024;  // a power of two, at least 2
  PipelineWake wake = PipelineWake::kLastStage;
  uint64_t max_spin_ns = IdleStrategy::kMaxSpinNs;
  uint32_t fixed_spins = 0;  // > 0: so many pauses before each sleep instead; for ADR 0008
};

template <typename Handler, size_t kThreadCount = 1, size_t kMostAtOnce = 64>
struct Stage {
  static_assert(kThreadCount >= 1 && kMostAtOnce >= 1);
  static constexpr size_t kThreads = kThreadCount;
  static constexpr size_t kBatchLimit = kMostAtOnce;
  using Gate = std::conditional_t<kThreads == 1, CursorGate, MarkGate>;
  Handler handler;
};

// The pipeline without threads: the owner of a thread drives a stage by StageRunner::poll() or
// run().
template <QueueItem T, Producers kProducers, typename... Stages>
class Pipeline {
 public:
  static constexpr size_t kStages = sizeof...(Stages);
  static_assert(kStages >= 1 && kStages + 2 <= WaitingPlace::kMaxClasses);
  template <size_t kStage>
  using StageAt = std::tuple_element_t<kStage, std::tuple<Stages...>>;

  class Producer;
  template <size_t kStage>
  class StageRunner;

  Pipeline(const PipelineOptions& options, Stages... stages)
      : options_(options),
        mask_(checked_capacity(options.capacity, 2) - 1),
        slots_(options.capacity),
        stages_(std::move(stages)...),
        pushed_(make_pushed_gate()),
        gates_((static_cast<void>(sizeof(Stages)), options.capacity)...) {}
  // All producers and runners are gone. Items that no runner has taken through are destroyed.
  ~Pipeline() {
    // relaxed: nobody else is here
    const size_t tail = tail_.load(std::memory_order_relaxed) & ~kClosedBit;
    for (size_t i = tail - std::min(tail, capacity()); i != tail; ++i) {
      if (last_gate().done_from(i, 1) == 0) std::destroy_at(slot(i));
    }
  }
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Producers::kOne: one at a time (CHECKed).
  [[nodiscard]] Producer producer() noexcept { return Producer(*this); }
  // One for each thread of the stage.
  template <size_t kStage>
  [[nodiscard]] StageRunner<kStage> runner() noexcept {
    return StageRunner<kStage>(*this);
  }

  void close() noexcept {
    // sync[pipeline.tail]: seq_cst against a sleeper's look; a claim now fails
    tail_.fetch_or(kClosedBit, std::memory_order_seq_cst);
    place_.wake_published(UINT32_MAX);
  }

  [[nodiscard]] size_t capacity() const noexcept { return mask_ + 1; }
  [[nodiscard]] bool was_closed() const noexcept {
    return (tail_.load(std::memory_order_relaxed) & kClosedBit) != 0;  // relaxed: racy by name
  }
  // Racy: futex calls made to wake somebody, so far.
  [[nodiscard]] uint64_t wakes_were() const noexcept { return place_.wakes_were(); }
  // Racy: somebody of the stage slept, or was about to, for lack of items anywhere before it /
  // because its predecessor had not finished.
  [[nodiscard]] bool was_idle() const noexcept { return place_.was_asleep(kIdle); }
  [[nodiscard]] bool was_lagging(uint32_t stage) const noexcept {
    return place_.was_asleep(lagging(stage));
  }

 private:
  // The `count` positions from `position` on, of one thread; 0: none.
  struct Claimed {
    size_t position = 0;
    size_t count = 0;
  };
  static constexpr size_t kClosedBit = TailGate::kClosedBit;
  static constexpr bool kOneProducer = kProducers == Producers::kOne;
  // Classes of the waiting place: 0 idle stages, 1.. stage s waits for stage s - 1, last:
  // producers.
  static constexpr uint32_t kIdle = 0;
  static constexpr uint32_t kSpace = kStages + 1;
  static constexpr uint32_t lagging(uint32_t stage) noexcept { return stage; }
  static constexpr size_t kLast = kStages - 1;
  using PushedGate = std::conditional_t<kOneProducer, TailGate, MarkGate>;
  PushedGate make_pushed_gate() noexcept(kOneProducer) {
    if constexpr (kOneProducer) {
      return TailGate(tail_);
    } else {
      return MarkGate(capacity());
    }
  }

  T* slot(size_t position) const noexcept { return slots_.get() + (position & mask_); }
  auto& last_gate() noexcept { return std::get<kLast>(gates_); }
  // The gate before a stage.
  template <size_t kStage>
  auto& gate_before() noexcept {
    if constexpr (kStage == 0) {
      return pushed_;
    } else {
      return std::get<kStage - 1>(gates_);
    }
  }
  [[nodiscard]] size_t tail_look() const noexcept {
    // sync[pipeline.tail]: seq_cst, it may be the look of a thread that is about to sleep
    return tail_.load(std::memory_order_seq_cst);
  }
  void wake(uint32_t classes, bool published_by_seq_cst) noexcept {
    published_by_seq_cst ? place_.wake_published(classes) : place_.wake(classes);
  }

  struct alignas(kFalseSharingRange) Claim {
    std::atomic<size_t> next{0};
  };

  const PipelineOptions options_;
  const size_t mask_;
  const RawSlots<T> slots_;
  std::tuple<Stages...> stages_;
  alignas(kFalseSharingRange) std::atomic<size_t> tail_{0};
  std::atomic<bool> producer_taken_{false};
  PushedGate pushed_;
  std::tuple<typename Stages::Gate...> gates_;
  Claim claims_[kStages];  // of stages with several threads
  alignas(kFalseSharingRange) WaitingPlace place_;
};

template <QueueItem T, Producers kProducers, typename... Stages>
class Pipeline<T, kProducers, Stages...>::Producer {
 public:
  Producer(Producer&& other) noexcept
      : pipeline_(std::exchange(other.pipeline_, nullptr)),
        free_until_(other.free_until_),
        idle_(other.idle_) {}
  Producer& operator=(Producer&&) = delete;
  ~Producer() {
    if (pipeline_ == nullptr || !kOneProducer) return;
    // sync[pipeline.producer]: release to the next holder of the role
    pipeline_->producer_taken_.store(false, std::memory_order_release);
  }

  // On false `value` is untouched.
  [[nodiscard]] bool try_push(T&& value) noexcept { return try_push_n({&value, 1}) == 1; }

  // Moves as many of `items` as fit, from the first on, into consecutive positions. 0: full or
  // closed.
  [[nodiscard]] size_t try_push_n(std::span<T> items) noexcept {
    if constexpr (kOneProducer) {
      return push_alone(items);
    } else {
      const auto [position, count] = claim(items.size());
      if (count == 0) return 0;
      fill(position, items.first(count));
      const bool seq_cst = pipeline_->pushed_.publish(position, count);
      pipeline_->wake(WaitingPlace::bit(kIdle), seq_cst);
      return count;
    }
  }

  // Waits for room. `value` is untouched unless kOk.
  QueueOutcome push(T&& value, uint64_t deadline_ns = UINT64_MAX) noexcept {
    for (;;) {
      // NOLINTNEXTLINE(bugprone-use-after-move): a push that fails leaves it untouched
      if (try_push(std::move(value))) break;
      if ((pipeline_->tail_look() & kClosedBit) != 0) return QueueOutcome::kClosed;
      if (idle_.idle() != IdleStrategy::Step::kPark) continue;
      if (deadline_ns != UINT64_MAX && now_ns() >= deadline_ns) return QueueOutcome::kTimedOut;
      const auto ticket = pipeline_->place_.prepare(kSpace);
      if (has_room() || (pipeline_->tail_look() & kClosedBit) != 0) continue;
      idle_.parking();
      pipeline_->place_.wait(ticket, kSpace, deadline_ns);
      idle_.unparked();
    }
    idle_.found();
    return QueueOutcome::kOk;
  }

 private:
  friend class Pipeline;
  explicit Producer(Pipeline& pipeline) noexcept
      : pipeline_(&pipeline), free_until_(0), idle_(pipeline.options_.max_spin_ns) {
    if constexpr (kOneProducer) {
      // sync[pipeline.producer]: acquire from the last holder of the role
      LUMEN_CHECK(!pipeline.producer_taken_.exchange(true, std::memory_order_acquire));
    }
  }

  // Free slots from `position` on. A slot is free when the last stage is done with its last lap.
  [[nodiscard]] size_t free_from(size_t position, size_t wanted) noexcept {
    const size_t capacity = pipeline_->capacity();
    const auto known = static_cast<ptrdiff_t>(free_until_ - position);
    if (known > 0 && static_cast<size_t>(known) >= wanted) return static_cast<size_t>(known);
    size_t free = 0;
    if (position < capacity) {  // the first lap: nothing was there before
      free = capacity - position;
      if (free < wanted) free += pipeline_->last_gate().done_from(0, wanted - free);
    } else {
      free = pipeline_->last_gate().done_from(position - capacity, wanted);
    }
    free_until_ = position + free;
    return free;
  }
  [[nodiscard]] bool has_room() noexcept {
    return free_from(pipeline_->tail_look() & ~kClosedBit, 1) != 0;
  }

  void fill(size_t position, std::span<T> items) noexcept {
    for (T& item : items) std::construct_at(pipeline_->slot(position++), std::move(item));
  }

  // Claim and publication in one compare-and-swap, after the slots have been filled.
  size_t push_alone(std::span<T> items) noexcept {
    // relaxed: written by this role alone, but for the closed bit, which the CAS checks
    size_t position = pipeline_->tail_.load(std::memory_order_relaxed);
    if ((position & kClosedBit) != 0) return 0;
    const size_t count = std::min(items.size(), free_from(position, items.size()));
    if (count == 0) return 0;
    fill(position, items.first(count));
    const size_t first = position;
    // sync[pipeline.tail]: release of the items, and seq_cst against a sleeper's announcement
    if (!pipeline_->tail_.compare_exchange_strong(position, position + count,
                                                  std::memory_order_seq_cst)) {
      for (size_t i = 0; i < count; ++i) {  // closed meanwhile
        items[i] = std::move(*pipeline_->slot(first + i));
        std::destroy_at(pipeline_->slot(first + i));
      }
      return 0;
    }
    pipeline_->place_.wake_published(WaitingPlace::bit(kIdle));
    return count;
  }

  // Claims up to `wanted` positions.
  Claimed claim(size_t wanted) noexcept {
    Backoff backoff;
    size_t position =
        pipeline_->tail_.load(std::memory_order_relaxed);  // relaxed: the CAS checks it
    for (;;) {
      if ((position & kClosedBit) != 0) return {};
      const size_t count = std::min(wanted, free_from(position, wanted));
      if (count == 0) {
        const size_t seen = position;
        position = pipeline_->tail_.load(std::memory_order_relaxed);  // relaxed: as above
        if (position == seen) return {};
        continue;
      }
      // sync[pipeline.tail]: seq_cst, for the stages that compare their position with it
      if (pipeline_->tail_.compare_exchange_weak(position, position + count,
                                                 std::memory_order_seq_cst,
                                                 std::memory_order_relaxed)) {  // relaxed: as above
        return {position, count};
      }
      backoff.lost(distance_);
    }
  }

  Pipeline* pipeline_;
  size_t free_until_;
  IdleStrategy idle_;
  CoreDistance distance_ = start_core_distance();
};

template <QueueItem T, Producers kProducers, typename... Stages>
template <size_t kStage>
class Pipeline<T, kProducers, Stages...>::StageRunner {
  using OwnStage = StageAt<kStage>;
  static constexpr bool kAlone = OwnStage::kThreads == 1;
  using Handler = decltype(OwnStage::handler);
  static constexpr bool kTakesSpan = std::is_invocable_v<Handler&, std::span<T>>;
  static_assert(kTakesSpan ? std::is_nothrow_invocable_v<Handler&, std::span<T>>
                           : std::is_nothrow_invocable_v<Handler&, T&>,
                "a handler takes T& or std::span<T> and is noexcept");

 public:
  // Takes at most one batch through the handler. 0: nothing is ready. Never waits.
  size_t poll() noexcept {
    const auto [position, count] = claim();
    if (count == 0) return 0;
    burst_ += count;
    handle(position, count);
    if constexpr (kStage == kLast) {
      for (size_t i = position; i != position + count; ++i) std::destroy_at(pipeline_->slot(i));
    }
    const bool seq_cst = std::get<kStage>(pipeline_->gates_).publish(position, count);
    constexpr uint32_t kNext = kStage == kLast ? kSpace : lagging(kStage + 1);
    pipeline_->wake(WaitingPlace::bit(kNext), seq_cst);
    return count;
  }

  // True: closed, and nothing is left for this stage to take.
  [[nodiscard]] bool finished() const noexcept {
    return pipeline_->tail_look() == (next() | kClosedBit);
  }

  // Polls and sleeps until finished.
  void run() noexcept {
    for (;;) {
      if (poll() != 0) {
        idle_.found();
        spins_ = 0;
      } else if (finished()) {
        break;
      } else if (!spin()) {
        park();
      }
    }
    // Other threads of this stage may sleep, and nobody else can tell them that they are done.
    pipeline_->place_.wake(WaitingPlace::bit(kIdle) | WaitingPlace::bit(lagging(kStage)));
  }

 private:
  // 46 ns an item where cores are near, more than a push takes that is left alone, or the distance
  // would not grow; at most 1.5 µs there, after 32 items. Two stages of nothing on two cores that
  // are 140 ns apart: without 12 to 20 M/s, with at most 0.4 µs 24 to 34, 0.7: 35 to 47, 1.5: 45 to
  // 52.
  static constexpr size_t kUnitsPerItem = 2;
  static constexpr size_t kMostUnits = 64;

  friend class Pipeline;
  explicit StageRunner(Pipeline& pipeline) noexcept
      : pipeline_(&pipeline), idle_(pipeline.options_.max_spin_ns) {}

  [[nodiscard]] size_t next() const noexcept {
    if constexpr (kAlone) {
      return next_;
    } else {
      // sync[pipeline.claim]: seq_cst, it may be the look of a thread that is about to sleep
      return pipeline_->claims_[kStage].next.load(std::memory_order_seq_cst);
    }
  }

  // Ready positions from `position` on.
  [[nodiscard]] size_t ready_from(size_t position, size_t wanted) noexcept {
    const auto known = static_cast<ptrdiff_t>(ready_until_ - position);
    if (known > 0) return static_cast<size_t>(known);
    // A stage that is quicker than the one before takes its line of progress, and that of the
    // slots, away from it for every few items; so it lets some more come together first. After a
    // look that has found nothing it looks at once.
    const size_t units = std::min(kUnitsPerItem * std::exchange(burst_, 0), kMostUnits);
    wait_for(std::min(units * wait_unit_ns(distance_), kMostWaitNs));
    const auto& gate = pipeline_->template gate_before<kStage>();
    size_t ready = 0;
    const auto look = [&] { ready = gate.done_from(position, wanted); };
    if (gate.kOneLine && units != 0 && distance_.is_sampled()) {
      const uint64_t ns = time_of(look);
      if (ready != 0) distance_.took(ns);
    } else {
      look();
    }
    ready_until_ = position + ready;
    return ready;
  }

  Claimed claim() noexcept {
    if constexpr (kAlone) {
      const size_t position = next_;
      const size_t count = batch_from(position);
      next_ += count;
      return {position, count};
    } else {
      auto& shared = pipeline_->claims_[kStage].next;
      Backoff backoff;
      size_t position = shared.load(std::memory_order_relaxed);  // relaxed: the CAS checks it
      for (;;) {
        const size_t count = batch_from(position);
        if (count == 0) return {};
        // sync[pipeline.claim]: seq_cst, against finished() in a thread that is about to sleep
        // relaxed on failure: tried again with the value that was read
        if (shared.compare_exchange_weak(position, position + count, std::memory_order_seq_cst,
                                         std::memory_order_relaxed)) {
          return {position, count};
        }
        backoff.lost(distance_);
      }
    }
  }
  [[nodiscard]] size_t batch_from(size_t position) noexcept {
    size_t most = OwnStage::kBatchLimit;
    // A span can't go across the ring's end.
    if (kTakesSpan) most = std::min(most, pipeline_->capacity() - (position & pipeline_->mask_));
    return std::min(most, ready_from(position, most));
  }

  void handle(size_t position, size_t count) noexcept {
    Handler& handler = std::get<kStage>(pipeline_->stages_).handler;
    if constexpr (kTakesSpan) {
      handler(std::span<T>(pipeline_->slot(position), count));
    } else {
      for (size_t i = position; i != position + count; ++i) handler(*pipeline_->slot(i));
    }
  }

  // False: time to sleep.
  bool spin() noexcept {
    if (pipeline_->options_.fixed_spins != 0) {
      cpu_pause();
      return ++spins_ < pipeline_->options_.fixed_spins;
    }
    return idle_.idle() != IdleStrategy::Step::kPark;
  }

  // Nothing in flight before this stage: only a push can bring work, so the class of pushes.
  [[nodiscard]] uint32_t waiting_class(size_t position) const noexcept {
    if (kStage == 0) return kIdle;
    if (pipeline_->options_.wake == PipelineWake::kEveryStage) return lagging(kStage);
    const size_t tail = pipeline_->tail_look() & ~kClosedBit;
    return position == tail ? kIdle : lagging(kStage);
  }

  void park() noexcept {
    const uint32_t own_class = waiting_class(next());
    WaitingPlace& place = pipeline_->place_;
    const auto ticket = place.prepare(own_class);
    // The second look, at all that could have changed: items, the end, and the class itself.
    const size_t position = next();
    if (ready_from(position, 1) != 0 || finished() || waiting_class(position) != own_class) return;
    idle_.parking();
    place.wait(ticket, own_class);
    idle_.unparked();
    spins_ = 0;
    // A push has woken all stages so that they are ready when the item comes by: spin for it.
    if (own_class == kIdle && kStage != 0) idle_.expect_soon();
  }

  Pipeline* pipeline_;
  size_t next_ = 0;
  size_t ready_until_ = 0;
  size_t burst_ = 0;  // positions taken since the last look at the gate before
  CoreDistance distance_ = start_core_distance();
  uint32_t spins_ = 0;
  IdleStrategy idle_;
};

// The pipeline with its threads: they start with it and end when it is closed and drained.
template <QueueItem T, Producers kProducers, typename... Stages>
class ThreadPipeline {
 public:
  using Core = Pipeline<T, kProducers, Stages...>;
  using Producer = typename Core::Producer;

  explicit ThreadPipeline(const PipelineOptions& options, Stages... stages)
      : core_(options, std::move(stages)...) {
    start(std::make_index_sequence<Core::kStages>());
  }
  ~ThreadPipeline() { drain(); }
  ThreadPipeline(const ThreadPipeline&) = delete;
  ThreadPipeline& operator=(const ThreadPipeline&) = delete;

  [[nodiscard]] Producer producer() noexcept { return core_.producer(); }
  // No push succeeds from here on; returns at once.
  void close() noexcept { core_.close(); }
  // close(), and waits until all that was accepted has passed through all stages. Idempotent; by
  // one thread at a time, and never by a handler.
  void drain() noexcept {
    core_.close();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  [[nodiscard]] Core& core() noexcept { return core_; }
  // To be pinned or named by the owner; in the order of the stages. Empty once drained.
  [[nodiscard]] std::span<std::thread> threads() noexcept { return threads_; }

 private:
  template <size_t... kStage>
  void start(std::index_sequence<kStage...>) {
    (start_stage<kStage>(), ...);
  }
  template <size_t kStage>
  void start_stage() {
    for (size_t i = 0; i < Core::template StageAt<kStage>::kThreads; ++i) {
      threads_.emplace_back([this] { core_.template runner<kStage>().run(); });
    }
  }

  Core core_;
  std::vector<std::thread> threads_;
};

}  // namespace lumen
