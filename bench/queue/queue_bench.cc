// The question: how many messages a second, and how long for a round trip, through one queue?
//
//   throughput   p producers (CPU 0, 1, ...) --queue--> c consumers (CPU 1, 0, ...), all spinning
//   copies       the same at 1 and 1, 256 items a call, through an array
//   spans        the same, written and read in the queue's memory
//   round trip   CPU 0 --queue a--> CPU 1 --queue b--> CPU 0
//
// One measurement a call, so that bench/queue.py interleaves contenders, those of other languages
// too:
//   bench_queue --row ROW --queue NAME --bytes 8|64 --capacity N --threads 1|2
//               --pinned 0|1 --ms M        prints {"mops": ..} or {"p50_ns": .., "p99_ns": ..}
//   bench_queue --list                     the contenders that were built, a line each: ROW NAME
//   bench_queue --probe                    how far CPU 0 and 1 are apart now: {"one_way_ns": ..}
#include "batches.h"
#include "contenders.h"

#include <lumen/base/core_distance.h>

#include <functional>
#include <map>

namespace lumen::bench {
namespace {

struct Setup {
  size_t capacity;
  size_t threads;  // producers, and as many consumers
  bool pinned;
  uint64_t duration_ns;
};

struct alignas(kFalseSharingRange) Tally {
  uint64_t count = 0;
  uint64_t sum = 0;
};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "bench_queue: %s\n", what);
  std::exit(2);
}

// A consumer's empty looks before it asks whether all producers have ended: 12 µs.
constexpr uint32_t kLastTries = 512;

// One run: the start that all wait for, and the items that are left.
struct Race {
  explicit Race(const Setup& s) : setup(s), pushing(s.threads) {}
  const Setup& setup;
  std::atomic<size_t> ready{0};
  std::atomic<size_t> pushing;
  std::atomic<uint64_t> start_ns{0};

  uint64_t await_start() {
    ready.fetch_add(1);
    while (start_ns.load(std::memory_order_acquire) == 0) std::this_thread::yield();
    return start_ns.load(std::memory_order_relaxed);
  }
  void start() {
    while (ready.load() != 2 * setup.threads) std::this_thread::yield();
    start_ns.store(now_ns(), std::memory_order_release);
  }
};

template <typename T, typename Queue>
Tally push_until_time_is_up(Race& race, Queue& queue) {
  auto handle = queue.pusher();
  Tally tally;
  const uint64_t end_ns = race.await_start() + race.setup.duration_ns;
  T item;
  do {
    for (int n = 0; n < 1024; ++n) {
      item.value = tally.count++;
      tally.sum += item.value;
      Retry retry;
      while (!handle.try_push(item)) retry.failed();
    }
  } while (now_ns() < end_ns);
  race.pushing.fetch_sub(1, std::memory_order_release);
  return tally;
}

template <typename T, typename Queue>
Tally pop_until_drained(Race& race, Queue& queue) {
  auto handle = queue.popper();
  Tally tally;
  race.await_start();
  T item;
  for (bool last_look = false;;) {
    Retry retry;
    bool got = handle.try_pop(item);
    for (uint32_t tries = 0; !got && tries < kLastTries; ++tries) {
      retry.failed();
      got = handle.try_pop(item);
    }
    if (got) {
      ++tally.count;
      tally.sum += item.value;
      last_look = false;
      continue;
    }
    // All was pushed before `pushing` became zero, so one more empty look ends it.
    if (last_look) return tally;
    last_look = race.pushing.load(std::memory_order_acquire) == 0;
  }
}

// Producers push until the time is up; consumers pop until all that was pushed is popped. With two
// a side on two CPUs each CPU has one of each.
template <typename T, typename Queue>
double throughput_mops(const Setup& setup) {
  Queue queue(setup.capacity);
  Race race(setup);
  std::vector<Tally> pushed(setup.threads);
  std::vector<Tally> popped(setup.threads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < setup.threads; ++i) {
    threads.emplace_back([&, i] {
      if (setup.pinned) pin_to(static_cast<int>(i % 2));
      pushed[i] = push_until_time_is_up<T>(race, queue);
    });
    threads.emplace_back([&, i] {
      if (setup.pinned) pin_to(static_cast<int>((i + 1) % 2));
      popped[i] = pop_until_drained<T>(race, queue);
    });
  }
  race.start();
  for (std::thread& thread : threads) thread.join();
  const auto elapsed_ns = static_cast<double>(now_ns() - race.start_ns.load());
  Tally in;
  Tally out;
  for (size_t i = 0; i < setup.threads; ++i) {
    in.count += pushed[i].count;
    in.sum += pushed[i].sum;
    out.count += popped[i].count;
    out.sum += popped[i].sum;
  }
  if (in.count != out.count || in.sum != out.sum) fail("items were lost");
  return static_cast<double>(out.count) * 1e3 / elapsed_ns;
}

template <typename T, typename Queue>
void round_trip(const Setup& setup) {
  Queue there(setup.capacity);
  Queue back(setup.capacity);
  constexpr uint32_t kTripsASample = 8;  // rdtsc and the clock step by 10 ns: time several
  std::vector<double> samples;
  std::atomic<bool> stop{false};
  std::thread echo([&] {
    pin_to(1);
    auto in = there.popper();
    auto out = back.pusher();
    T item;
    while (!stop.load(std::memory_order_relaxed)) {
      if (!in.try_pop(item)) continue;
      while (!out.try_push(item)) continue;
    }
  });
  std::thread self([&] {
    pin_to(0);
    auto out = there.pusher();
    auto in = back.popper();
    const uint64_t end_ns = now_ns() + setup.duration_ns;
    T item;
    for (uint64_t start = now_ns(); start < end_ns; start = now_ns()) {
      for (uint32_t i = 0; i < kTripsASample; ++i) {
        while (!out.try_push(item)) continue;
        while (!in.try_pop(item)) continue;
      }
      samples.push_back(static_cast<double>(now_ns() - start) / kTripsASample);
    }
    stop.store(true);
  });
  self.join();
  echo.join();
  std::sort(samples.begin(), samples.end());
  std::printf("{\"p50_ns\": %.1f, \"p99_ns\": %.1f}\n", samples[samples.size() / 2],
              samples[samples.size() * 99 / 100]);
}

constexpr size_t kBatch = 256;

template <typename Fill, typename Empty>
double batch_mops(const Setup& setup, Fill&& fill, Empty&& empty) {
  std::atomic<bool> done{false};
  uint64_t count = 0;
  uint64_t sum_in = 0;
  uint64_t sum_out = 0;
  std::atomic<size_t> ready{0};
  std::thread producer([&] {
    pin_to(0);
    ready.fetch_add(1);
    while (ready.load() != 2) std::this_thread::yield();
    const uint64_t end_ns = now_ns() + setup.duration_ns;
    do {
      for (int i = 0; i < 64; ++i) fill(count, sum_in);
    } while (now_ns() < end_ns);
    done.store(true, std::memory_order_release);
  });
  std::thread consumer([&] {
    pin_to(1);
    ready.fetch_add(1);
    while (ready.load() != 2) std::this_thread::yield();
    for (bool last_look = false;;) {
      if (empty(sum_out)) {
        last_look = false;
        continue;
      }
      if (last_look) break;
      last_look = done.load(std::memory_order_acquire);
    }
  });
  producer.join();
  consumer.join();
  if (sum_in != sum_out) fail("items were lost");
  return static_cast<double>(count) * 1e3 / static_cast<double>(setup.duration_ns);
}

template <typename T, typename Queue>
double spans_mops(const Setup& setup) {
  Queue queue(setup.capacity);
  return batch_mops(
      setup,
      [&](uint64_t& count, uint64_t& sum) {
        const size_t n = queue.fill(kBatch, [&](std::span<T> room) {
          for (size_t i = 0; i < room.size(); ++i) room[i].value = count + i;
        });
        if (n == 0) return cpu_pause();
        sum += n * count + n * (n - 1) / 2;
        count += n;
      },
      [&](uint64_t& sum) {
        const size_t n = queue.drain(kBatch, [&](std::span<T> items) {
          for (const T& item : items) sum += item.value;
        });
        if (n == 0) cpu_pause();
        return n != 0;
      });
}

template <typename T, typename Queue>
double copies_mops(const Setup& setup) {
  Queue queue(setup.capacity);
  std::vector<T> in(kBatch);
  std::vector<T> out(kBatch);
  return batch_mops(
      setup,
      [&](uint64_t& count, uint64_t& sum) {
        for (size_t i = 0; i < kBatch; ++i) in[i].value = count + i;
        for (size_t pushed = 0; pushed < kBatch;) {
          const size_t n = queue.push_n(std::span<T>(in).subspan(pushed));
          if (n == 0) cpu_pause();
          pushed += n;
        }
        sum += kBatch * count + kBatch * (kBatch - 1) / 2;
        count += kBatch;
      },
      [&](uint64_t& sum) {
        const size_t n = queue.pop_n(std::span<T>(out));
        if (n == 0) return cpu_pause(), false;
        for (size_t i = 0; i < n; ++i) sum += out[i].value;
        return true;
      });
}

using Measure = std::function<void(const Setup&)>;
using Key = std::pair<std::string, std::string>;  // row, contender

template <typename T, template <typename> typename Queue>
void add_queue(std::map<Key, Measure>& all, const char* row, const char* name) {
  all[{row, name}] = [](const Setup& setup) {
    std::printf("{\"mops\": %.2f}\n", throughput_mops<T, Queue<T>>(setup));
  };
  all[{std::string(row) + "_trip", name}] = [](const Setup& setup) {
    round_trip<T, Queue<T>>(setup);
  };
}

template <typename T, typename Queue>
void add_copies(std::map<Key, Measure>& all, const char* row, const char* name) {
  all[{row, name}] = [](const Setup& setup) {
    std::printf("{\"mops\": %.2f}\n", copies_mops<T, Queue>(setup));
  };
}
template <typename T, typename Queue>
void add_spans(std::map<Key, Measure>& all, const char* name) {
  all[{"spsc_spans", name}] = [](const Setup& setup) {
    std::printf("{\"mops\": %.2f}\n", spans_mops<T, Queue>(setup));
  };
}

// Copies against copies, spans against spans.
template <typename T>
void add_batches(std::map<Key, Measure>& all) {
  add_copies<T, LumenSpscCopies<T>>(all, "spsc_copies", "lumen");
  add_copies<T, LumenCopies<T, MpmcQueue<T>>>(all, "mpmc_copies", "lumen");
  add_spans<T, LumenSpscSpans<T>>(all, "lumen");
  add_spans<T, PlainRingSpans<T>>(all, "plain ring");
  add_spans<T, MutexRingSpans<T, std::mutex>>(all, "mutex ring");
  add_spans<T, MutexRingSpans<T, SpinningMutex>>(all, "mutex ring, spinning");
  for (const char* row : {"spsc_copies", "mpmc_copies"}) {
    add_copies<T, MutexDequeCopies<T, std::mutex>>(all, row, "mutex+deque");
    add_copies<T, MutexDequeCopies<T, SpinningMutex>>(all, row, "mutex+deque, spinning");
    add_copies<T, LumenCopies<T, MutexQueue<T>>>(all, row, "lumen-mutex");
#if defined(LUMEN_BENCH_CONCURRENT)
    add_copies<T, MoodycamelBulk<T>>(all, row, "moodycamel-bulk");
#endif
  }
#if defined(LUMEN_BENCH_BOOST)
  add_copies<T, BoostSpscCopies<T>>(all, "spsc_copies", "boost");
#endif
}

template <typename T>
std::map<Key, Measure> contenders() {
  std::map<Key, Measure> all;
  add_queue<T, LumenSpsc>(all, "spsc", "lumen");
  add_queue<T, PlainMutexDeque>(all, "spsc", "mutex+deque");
  add_queue<T, SpinningMutexDeque>(all, "spsc", "mutex+deque, spinning");
  add_queue<T, LumenMpmc>(all, "mpmc", "lumen");
  add_queue<T, LumenMpmcPadded>(all, "mpmc", "lumen-padded");
  add_queue<T, LumenMutex>(all, "mpmc", "lumen-mutex");
  add_queue<T, PlainMutexDeque>(all, "mpmc", "mutex+deque");
  add_queue<T, SpinningMutexDeque>(all, "mpmc", "mutex+deque, spinning");
  add_queue<T, PlainVyukov>(all, "mpmc", "vyukov");
#if defined(LUMEN_BENCH_READERWRITER)
  add_queue<T, MoodycamelSpsc>(all, "spsc", "moodycamel");
#endif
#if defined(LUMEN_BENCH_CONCURRENT)
  add_queue<T, MoodycamelMpmc>(all, "mpmc", "moodycamel");
#endif
#if defined(LUMEN_BENCH_BOOST)
  add_queue<T, BoostSpsc>(all, "spsc", "boost");
  add_queue<T, BoostMpmc>(all, "mpmc", "boost");
#endif
#if defined(LUMEN_BENCH_TBB)
  add_queue<T, TbbBounded>(all, "mpmc", "tbb");
#endif
  add_batches<T>(all);
  return all;
}

int run(const Arguments& arguments) {
  if (arguments.flag("--list")) {
    for (const auto& [key, measure] : contenders<Item8>()) {
      std::printf("%s %s\n", key.first.c_str(), key.second.c_str());
    }
    return 0;
  }
  if (arguments.flag("--probe")) {
    std::printf("{\"one_way_ns\": %.1f}\n", probe_one_way_ns());
    return 0;
  }
  measure_core_distance();  // as the server does at its start
  const Setup setup{arguments.number("--capacity", 1024), arguments.number("--threads", 1),
                    arguments.number("--pinned", 1) != 0,
                    arguments.number("--ms", 100) * 1'000'000};
  const Key key{arguments.text("--row", ""), arguments.text("--queue", "")};
  const auto all = arguments.number("--bytes", 8) == 8 ? contenders<Item8>() : contenders<Item64>();
  const auto found = all.find(key);
  if (found == all.end()) fail("no such row and queue; see --list");
  found->second(setup);
  return 0;
}

}  // namespace
}  // namespace lumen::bench

int main(int argc, char** argv) { return lumen::bench::run(lumen::bench::Arguments(argc, argv)); }
