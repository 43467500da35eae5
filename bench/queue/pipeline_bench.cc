// The question: what does a hop through a staged pipeline cost, under load, after idle, and at
// rest?
//
//   producer --> stage 0 --> stage 1 [--> stage 2]     one thread each, pinned in turn to CPU 0 and 1
//
// Ours is one ring; the rivals chain a queue before each stage. One measurement a call:
//   bench_pipeline --row throughput --queue NAME --stages 2|3 --ms M   {"mops", "ns_hop", "futex_10k"}
//   bench_pipeline --row wake --queue NAME --stages 2|3 --ms M         {"p50_ns", "p99_ns"}
//   bench_pipeline --row idle --queue NAME --stages 2|3 --ms M         {"cpu_ms_10s"}
//   bench_pipeline --row ablation --queue VARIANT --ms M               see pipeline_ablation.h
//   bench_pipeline --list                                              ROW NAME, a line each
#include "harness.h"
#include "pipeline_ablation.h"

#include <lumen/base/core_distance.h>
#include <lumen/queue/mpmc_queue.h>
#include <lumen/queue/mutex_queue.h>
#include <lumen/queue/spsc_queue.h>
#include <lumen/queue/thread_pipeline.h>

#include <array>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <span>

#if __has_include(<readerwriterqueue/readerwriterqueue.h>)
#include <readerwriterqueue/readerwriterqueue.h>
#define LUMEN_BENCH_READERWRITER 1
#endif
#if __has_include(<concurrentqueue/blockingconcurrentqueue.h>)
#include <concurrentqueue/blockingconcurrentqueue.h>
#define LUMEN_BENCH_CONCURRENT 1
#endif

namespace lumen::bench {
namespace {

constexpr size_t kCapacity = 1024;
constexpr size_t kStageBatch = 256;
constexpr uint64_t kLast = UINT64_MAX;  // travels through to end the threads of a chain

// The parts that the stages share: how much came out, and when the timed item did.
struct Sink {
  uint64_t count = 0;
  uint64_t sum = 0;
  alignas(kFalseSharingRange) std::atomic<uint64_t> seen_ns{0};
};
struct AddOne {
  void operator()(uint64_t& item) const noexcept { ++item; }
};
struct Collect {
  Sink* sink;
  bool timed;
  void operator()(uint64_t& item) const noexcept {
    ++sink->count;
    sink->sum += item;
    if (timed) sink->seen_ns.store(now_ns(), std::memory_order_release);
  }
};

void pin_thread(std::thread& thread, size_t place) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(place % 2, &set);
  pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
}

// Ours. push() and finish() by one thread.
template <typename... Stages>
class OursWith {
 public:
  explicit OursWith(Stages... stages)
      : pipeline_({.capacity = kCapacity}, std::move(stages)...), producer_(pipeline_.producer()) {
    size_t place = 1;  // the producer is on CPU 0
    for (std::thread& thread : pipeline_.threads()) pin_thread(thread, place++);
  }
  void push(uint64_t item) { static_cast<void>(producer_.push(uint64_t{item})); }
  void finish() { pipeline_.drain(); }
  uint64_t futex_calls() { return pipeline_.core().wakes_were(); }
  // All stages sleep, or are about to.
  void await_idle() {
    while (!pipeline_.core().was_idle()) cpu_pause();
  }

 private:
  ThreadPipeline<uint64_t, Producers::kOne, Stages...> pipeline_;
  typename ThreadPipeline<uint64_t, Producers::kOne, Stages...>::Producer producer_;
};

// A chain: a queue before each stage, a thread for each stage. Link: push, push_n, pop_n (all
// wait).
template <typename Link>
class Chain {
 public:
  Chain(size_t stages, Sink* sink, bool timed) {
    for (size_t i = 0; i < stages; ++i) links_.push_back(std::make_unique<Link>(kCapacity));
    for (size_t i = 0; i < stages; ++i) {
      threads_.emplace_back(
          [this, i, stages, collect = Collect{sink, timed}] { run(i, i + 1 == stages, collect); });
      pin_thread(threads_.back(), i + 1);
    }
  }
  void push(uint64_t item) { links_[0]->push(item); }
  void finish() {
    push(kLast);
    for (std::thread& thread : threads_) thread.join();
  }
  uint64_t futex_calls() { return 0; }  // not counted by the queues
  void await_idle() {}

 private:
  // As many as there are, 256 at most, as the stages of ours take.
  void run(size_t i, bool is_last, const Collect& collect) {
    std::array<uint64_t, kStageBatch> items;
    for (;;) {
      size_t count = links_[i]->pop_n(items);
      const bool ended = items[count - 1] == kLast;
      count -= ended ? 1 : 0;
      for (size_t k = 0; k < count; ++k) {
        if (is_last) {
          collect(items[k]);
        } else {
          ++items[k];
        }
      }
      if (!is_last) links_[i + 1]->push_n(std::span(items).first(count));
      if (!ended) continue;
      if (!is_last) links_[i + 1]->push(kLast);
      return;
    }
  }
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<std::thread> threads_;
};

// push_n() of a link whose queue takes part of a batch: the rest goes item by item, which waits.
template <typename TryPushN, typename Push>
void push_all(std::span<uint64_t> items, TryPushN&& try_push_n, Push&& push) {
  while (!items.empty()) {
    items = items.subspan(try_push_n(items));
    if (items.empty()) return;
    push(items.front());
    items = items.subspan(1);
  }
}

class SpscLink {
 public:
  explicit SpscLink(size_t capacity)
      : queue_(capacity), producer_(queue_.producer()), consumer_(queue_.consumer()) {}
  void push(uint64_t item) { static_cast<void>(producer_.push(uint64_t{item})); }
  void push_n(std::span<uint64_t> items) {
    push_all(
        items, [&](std::span<uint64_t> some) { return producer_.try_push_n(some); },
        [&](uint64_t item) { push(item); });
  }
  size_t pop_n(std::span<uint64_t> items) {
    static_cast<void>(consumer_.pop(items[0]));
    return 1 + consumer_.try_pop_n(items.subspan(1));
  }

 private:
  using Queue = SpscQueue<uint64_t, Waiting::kDoorbell>;
  Queue queue_;
  alignas(kFalseSharingRange) Queue::Producer producer_;
  alignas(kFalseSharingRange) Queue::Consumer consumer_;
};

template <typename Queue>
class SharedLink {
 public:
  explicit SharedLink(size_t capacity) : queue_(capacity) {}
  void push(uint64_t item) { static_cast<void>(queue_.push(std::move(item), pusher_)); }
  void push_n(std::span<uint64_t> items) {
    push_all(
        items, [&](std::span<uint64_t> some) { return queue_.try_push_n(some); },
        [&](uint64_t item) { push(item); });
  }
  size_t pop_n(std::span<uint64_t> items) {
    static_cast<void>(queue_.pop(items[0], popper_));
    return 1 + queue_.try_pop_n(items.subspan(1));
  }

 private:
  Queue queue_;
  alignas(kFalseSharingRange) IdleStrategy pusher_;
  alignas(kFalseSharingRange) IdleStrategy popper_;
};

using MpmcLink = SharedLink<MpmcQueue<uint64_t, Padding::kNone, Waiting::kDoorbell>>;
using MutexLink = SharedLink<MutexQueue<uint64_t>>;

// The mutex and its condition variables, which may spin where ours spin: with the same idle
// strategy.
class SpinningMutexLink {
 public:
  explicit SpinningMutexLink(size_t capacity) : queue_(capacity) {}
  void push(uint64_t item) {
    while (!queue_.try_push(uint64_t{item})) {
      if (pusher_.idle() != IdleStrategy::Step::kPark) continue;
      static_cast<void>(queue_.push(uint64_t{item}));
      break;
    }
    pusher_.found();
  }
  void push_n(std::span<uint64_t> items) {
    push_all(
        items, [&](std::span<uint64_t> some) { return queue_.try_push_n(some); },
        [&](uint64_t item) { push(item); });
  }
  size_t pop_n(std::span<uint64_t> items) {
    size_t count = 0;
    while ((count = queue_.try_pop_n(items)) == 0) {
      if (popper_.idle() != IdleStrategy::Step::kPark) continue;
      popper_.parking();
      static_cast<void>(queue_.pop(items[0]));
      popper_.unparked();
      count = 1 + queue_.try_pop_n(items.subspan(1));
      break;
    }
    popper_.found();
    return count;
  }

 private:
  MutexQueue<uint64_t> queue_;
  alignas(kFalseSharingRange) IdleStrategy pusher_;
  alignas(kFalseSharingRange) IdleStrategy popper_;
};

#if defined(LUMEN_BENCH_READERWRITER)
// It has no bulk calls: the first item waits, the others are taken one by one.
class MoodycamelLink {
 public:
  explicit MoodycamelLink(size_t capacity) : queue_(capacity) {}
  void push(uint64_t item) {
    Retry retry;
    while (!queue_.try_enqueue(item)) retry.failed();
  }
  void push_n(std::span<uint64_t> items) {
    for (const uint64_t item : items) push(item);
  }
  size_t pop_n(std::span<uint64_t> items) {
    queue_.wait_dequeue(items[0]);
    size_t count = 1;
    while (count < items.size() && queue_.try_dequeue(items[count])) ++count;
    return count;
  }

 private:
  moodycamel::BlockingReaderWriterQueue<uint64_t> queue_;
};
#endif
#if defined(LUMEN_BENCH_CONCURRENT)
// Its bulk calls with tokens. Bounded by its preallocated blocks: try_enqueue takes no others.
class MoodycamelBulkLink {
 public:
  explicit MoodycamelBulkLink(size_t capacity) : queue_(capacity, 1, 0) {}
  void push(uint64_t item) { push_n({&item, 1}); }
  void push_n(std::span<uint64_t> items) {
    Retry retry;
    while (!items.empty() && !queue_.try_enqueue_bulk(in_, items.data(), items.size())) {
      retry.failed();
    }
  }
  size_t pop_n(std::span<uint64_t> items) {
    return queue_.wait_dequeue_bulk(out_, items.data(), items.size());
  }

 private:
  moodycamel::BlockingConcurrentQueue<uint64_t> queue_;
  moodycamel::ProducerToken in_{queue_};
  moodycamel::ConsumerToken out_{queue_};
};
#endif

template <typename Pipe>
void throughput(Pipe& pipe, Sink& sink, size_t stages, uint64_t duration_ns) {
  pin_to(0);
  uint64_t pushed = 0;
  const uint64_t start_ns = now_ns();
  while (now_ns() - start_ns < duration_ns) {
    for (int i = 0; i < 256; ++i) pipe.push(pushed++);
  }
  pipe.finish();
  const auto elapsed_ns = static_cast<double>(now_ns() - start_ns);
  if (sink.count != pushed || sink.sum != pushed * (pushed - 1) / 2 + pushed * (stages - 1)) {
    std::fprintf(stderr, "bench_pipeline: items were lost\n");
    std::exit(2);
  }
  std::printf("{\"mops\": %.3f, \"ns_hop\": %.2f, \"futex_10k\": %.4f}\n",
              static_cast<double>(pushed) * 1e3 / elapsed_ns,
              elapsed_ns / static_cast<double>(pushed) / static_cast<double>(stages),
              static_cast<double>(pipe.futex_calls()) * 1e4 / static_cast<double>(pushed));
}

// Sleeps on a doorbell that nobody wakes: longer than any spin, so that the stages are parked.
void rest(uint64_t nanoseconds) {
  Doorbell nobody;
  nobody.wait(nobody.prepare(), now_ns() + nanoseconds);
}

template <typename Pipe>
void wake(Pipe& pipe, Sink& sink, uint64_t duration_ns) {
  pin_to(0);
  std::vector<double> samples;
  const uint64_t end_ns = now_ns() + duration_ns;
  while (now_ns() < end_ns) {
    rest(2'000'000);
    pipe.await_idle();
    const uint64_t seen_before = sink.seen_ns.load(std::memory_order_acquire);
    const uint64_t start_ns = now_ns();
    pipe.push(samples.size());
    // The stages share this core: it must not be spun on.
    uint64_t seen = seen_before;
    while ((seen = sink.seen_ns.load(std::memory_order_acquire)) == seen_before) rest(200'000);
    samples.push_back(static_cast<double>(seen - start_ns));
  }
  pipe.finish();
  std::sort(samples.begin(), samples.end());
  std::printf("{\"p50_ns\": %.0f, \"p99_ns\": %.0f}\n", samples[samples.size() / 2],
              samples[samples.size() * 99 / 100]);
}

template <typename Pipe>
void idle(Pipe& pipe, uint64_t duration_ns) {
  pipe.push(1);
  rest(100'000'000);
  timespec before{};
  timespec after{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  rest(duration_ns);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  pipe.finish();
  const double used_ms = static_cast<double>(after.tv_sec - before.tv_sec) * 1e3 +
                         static_cast<double>(after.tv_nsec - before.tv_nsec) / 1e6;
  std::printf("{\"cpu_ms_10s\": %.3f}\n", used_ms * 1e10 / static_cast<double>(duration_ns));
}

struct Task {
  std::string row;
  size_t stages;
  uint64_t duration_ns;
};

template <typename Pipe>
void measure(const Task& task, Pipe& pipe, Sink& sink) {
  if (task.row == "throughput") return throughput(pipe, sink, task.stages, task.duration_ns);
  if (task.row == "wake") return wake(pipe, sink, task.duration_ns);
  return idle(pipe, task.duration_ns);
}

template <typename Link>
void measure_chain(const Task& task) {
  Sink sink;
  Chain<Link> chain(task.stages, &sink, task.row == "wake");
  measure(task, chain, sink);
}

void measure_ours(const Task& task) {
  Sink sink;
  const Collect collect{&sink, task.row == "wake"};
  using Middle = Stage<AddOne, 1, kStageBatch>;
  using End = Stage<Collect, 1, kStageBatch>;
  if (task.stages == 2) {
    OursWith<Middle, End> pipe({}, {collect});
    measure(task, pipe, sink);
  } else {
    OursWith<Middle, Middle, End> pipe({}, {}, {collect});
    measure(task, pipe, sink);
  }
}

std::map<std::string, std::function<void(const Task&)>> contenders() {
  std::map<std::string, std::function<void(const Task&)>> all;
  all["lumen"] = measure_ours;
  all["lumen-spsc-chain"] = measure_chain<SpscLink>;
  all["lumen-mpmc-chain"] = measure_chain<MpmcLink>;
#if defined(LUMEN_BENCH_READERWRITER)
  all["moodycamel-chain"] = measure_chain<MoodycamelLink>;
#endif
#if defined(LUMEN_BENCH_CONCURRENT)
  all["moodycamel-bulk-chain"] = measure_chain<MoodycamelBulkLink>;
#endif
  all["mutex-chain"] = measure_chain<MutexLink>;
  all["mutex-chain, spinning"] = measure_chain<SpinningMutexLink>;
  return all;
}

int run(const Arguments& arguments) {
  const auto all = contenders();
  if (arguments.flag("--list")) {
    for (const char* row : {"throughput", "wake", "idle"}) {
      for (const auto& [name, task] : all) std::printf("%s %s\n", row, name.c_str());
    }
    for (const char* name : kAblationVariants) std::printf("ablation %s\n", name);
    return 0;
  }
  measure_core_distance();  // as the server does at its start
  const Task task{arguments.text("--row", ""), arguments.number("--stages", 2),
                  arguments.number("--ms", 100) * 1'000'000};
  const std::string name = arguments.text("--queue", "lumen");
  if (task.row == "ablation") return run_ablation(name, task.duration_ns);
  const auto found = all.find(name);
  if (found == all.end()) {
    std::fprintf(stderr, "bench_pipeline: no contender %s; see --list\n", name.c_str());
    return 2;
  }
  found->second(task);
  return 0;
}

}  // namespace
}  // namespace lumen::bench

int main(int argc, char** argv) { return lumen::bench::run(lumen::bench::Arguments(argc, argv)); }
