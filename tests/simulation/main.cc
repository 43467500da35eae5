// The simulated world: a whole server (I/O threads, engine, control thread, builders, a backend's device) with
// clients, all on one thread, one seed after another. See fibers.h, network.h and client.h.
//   simulation [--seed N] [--worlds N] [--fault lost_wake_up | double_completion | early_reuse]
// LUMEN_SIM_HISTORIES: how many requests in all, where no --seed is given.
// Threads: one. Memory: the heap. Errors: status 1 with the failing seed.
#include "simulation/client.h"
#include "simulation/fibers.h"
#include "simulation/network.h"
#include "support/fake_backend.h"
#include "support/temp_repository.h"
#include "support/wrapping_backend.h"

#include <lumen/base/idle_strategy.h>
#include <lumen/serve/server.h>

#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace lumen::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr size_t kHistoriesOfAWorld = 200;
// Beside the memory of requests: clients, connections, a second configuration's workers.
constexpr size_t kHeapOfOthers = 4 << 20;
constexpr uint64_t kReplays = 20;        // worlds that are run twice more and compared
constexpr uint64_t kLooksForLeaks = 16;  // one world in so many
// Less than a byte for each request of a world; a static table of the C++ library may grow.
constexpr size_t kLeakBytes = 128;

size_t heap_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

// A model that takes its time, and with the fault tells twice.
class SlowInstance final : public engine::Instance {
 public:
  explicit SlowInstance(std::unique_ptr<engine::Instance> inner) : inner_(std::move(inner)) {}
  uint32_t max_in_flight() const noexcept override { return inner_->max_in_flight(); }
  engine::StartOutcome start(engine::InferRequest& request,
                             void (*done)(engine::InferRequest&) noexcept) noexcept override {
    // A client's request alone, not what the engine measures at a start or a change.
    if (request.trace.received_ns != 0 && random().one_in(2)) {
      let_time_pass_ns(random().below(random().one_in(50) ? 80 * kMs : 100'000));
    }
    if (!faults.double_completion) return inner_->start(request, done);
    tell_ = done;
    return inner_->start(request, [](engine::InferRequest& it) noexcept {
      tell_(it);
      if (random().one_in(16)) tell_(it);
    });
  }

 private:
  static inline void (*tell_)(engine::InferRequest&) noexcept = nullptr;
  std::unique_ptr<engine::Instance> inner_;
};

engine::EngineConfig some_config() {
  engine::EngineConfig config;
  config.queue_type = static_cast<engine::QueueType>(random().below(5));
  config.allocator_type = static_cast<engine::AllocatorType>(random().below(2));
  config.thread_count = static_cast<uint32_t>(1 + random().below(3));
  config.batch_size = random().one_in(2) ? 1 : 4;
  config.max_queue_delay_us = random().one_in(2) ? 0 : 200;
  config.queue_capacity = size_t{2} << random().below(5);
  config.default_timeout_us = random().one_in(3) ? 500 + random().below(20'000) : 0;
  config.latency_budget_us = random().one_in(4) ? 2'000 + random().below(50'000) : 0;
  return config;
}

serve::ServerOptions some_options(const engine::TempRepository& files) {
  serve::ServerOptions options;
  options.http_address = "127.0.0.1:0";
  options.unix_path = (files.path() / "socket").string();
  options.model_repository = files.path() / "models";
  options.engine = some_config();
  options.pin_threads.mode = PinThreads::Mode::kOff;
  options.spin = serve::SpinMode::kOff;
  options.io_thread_count = static_cast<uint32_t>(1 + random().below(2));
  options.max_body_bytes = 64 * 1024;
  options.max_connections = 2 + random().below(6);
  options.max_active_requests = 2 + random().below(6);
  // As little memory as it may be given, or somewhat more.
  if (random().one_in(2)) {
    options.max_memory_bytes = serve::least_memory_bytes(options) + random().below(256 * 1024);
  }
  options.drain_timeout_ns = random().one_in(2) ? 100 * kMs : random().below(2 * kMs);
  options.timeouts = {.head_ns = 100 * kMs,
                      .body_period_ns = 100 * kMs,
                      .body_min_bytes = 64,
                      .write_stall_ns = 160 * kMs,
                      .idle_ns = 300 * kMs,
                      .linger_ns = 50 * kMs};
  return options;
}

// What the server counted and what the clients saw.
void compare(const telemetry::Counters& counters, const Tally& tally) {
  if (counters.total("connections_open") != 0) fail("connections are counted open at the end");
  if (tally.unanswered > counters.total("timeouts")) {
    fail("%llu requests have no answer, and only %llu timeouts were counted",
         static_cast<unsigned long long>(tally.unanswered),
         static_cast<unsigned long long>(counters.total("timeouts")));
  }
  const uint64_t responses = counters.total("responses_2xx") + counters.total("responses_4xx") +
                             counters.total("responses_5xx");
  if (tally.replies_ok + tally.replies_refused > responses) {
    fail("more replies came than were sent");
  }
}

std::shared_ptr<engine::FakeControl> some_control() {
  auto control = std::make_shared<engine::FakeControl>();
  control->asynchronous = random().one_in(2);
  control->max_in_flight = static_cast<uint32_t>(1 + random().below(4));
  control->traits.batches_in_flight = random().one_in(2);
  control->traits.makes_instances_in_parallel = random().one_in(2);
  control->seed = random().next();
  return control;
}

std::unique_ptr<engine::Backend> some_backend(std::shared_ptr<engine::FakeControl> control) {
  return std::make_unique<engine::WrappingBackend>(
      engine::make_fake_backend(std::move(control)), [](std::unique_ptr<engine::Instance> inner) {
        return std::unique_ptr<engine::Instance>(std::make_unique<SlowInstance>(std::move(inner)));
      });
}

void on_signal(int number) {
  std::signal(number, SIG_DFL);
  fail("signal %d", number);
}

// Of all worlds; in memory that they share, since each is a process of its own.
struct Sum {
  uint64_t worlds, histories, ok, refused, unanswered, switches, hash, cpu_us;
  uint64_t timeouts, cancelled, swaps, late, full, unavailable, late_heads, drained;
  uint64_t by_queue_type[5];
};

void add_up(Sum& sum, const Tally& tally, const telemetry::Counters& counters) {
  sum.histories += tally.histories;
  sum.ok += tally.replies_ok;
  sum.refused += tally.replies_refused;
  sum.unanswered += tally.unanswered;
  sum.late_heads += tally.by_status[408];
  sum.full += tally.by_status[429];
  sum.unavailable += tally.by_status[503];
  sum.late += tally.by_status[504];
  sum.timeouts += counters.total("timeouts");
  sum.cancelled += counters.total("cancelled");
  sum.swaps += counters.total("engine_swaps");
}

void live(const engine::TempRepository& files, Sum& sum) {
  Tally tally;
  auto control = some_control();
  const serve::ServerOptions options = some_options(files);
  ++sum.by_queue_type[static_cast<size_t>(options.engine.queue_type)];
  auto started = serve::Server::start(options, some_backend(control));
  if (!started.ok()) fail("the server does not start: %s", started.status().message().data());
  serve::Server& server = **started;
  if (options.max_memory_bytes != 0) {
    tally.look = [most = heap_bytes() + options.max_memory_bytes + kHeapOfOthers] {
      const size_t heap = heap_bytes();
      if (heap > most)
        fail("%zu bytes of the heap are taken, %zu more than may be", heap, heap - most);
    };
  }

  const size_t count = 1 + random().below(8);
  std::vector<std::thread> clients;
  clients.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    clients.emplace_back([&] { SimClient(tally).run(kHistoriesOfAWorld / count); });
  }
  bool leaves = false;
  std::thread changes([&] {
    for (size_t i = random().below(6); i > 0 && !leaves; --i) {
      let_time_pass_ns(random().below(20 * kMs));
      const Status status = server.reconfigure(some_config());
      if (!status.ok()) fail("a change fails: %s", status.message().data());
    }
  });
  const bool drains_early = random().one_in(3);
  if (drains_early) {
    let_time_pass_ns(random().below(60 * kMs));
    ++sum.drained;
  } else {
    for (std::thread& client : clients) client.join();
  }
  leaves = true;
  changes.join();
  tally.draining = true;
  server.drain();
  if (drains_early) {
    for (std::thread& client : clients) client.join();
  }
  compare(server.counters(), tally);
  add_up(sum, tally, server.counters());
  started->reset();
  if (control->registered_bytes.load() != 0) fail("memory is left registered");
}

void run_one(uint64_t seed, const engine::TempRepository& files, Sum& sum) {
  begin_network();
  run_world(seed, [&] { live(files, sum); });
  expect_nothing_left();
  begin_network();  // lets go of its connections
  ::unlink((files.path() / "socket").c_str());
}

// The same world once more leaves no more behind. What is made once a process may come late, in a repetition
// that took another way (what a wake-up costs is a mean over the process's life), but not each time.
void expect_no_leak(uint64_t seed, const engine::TempRepository& files) {
  size_t left = 0;
  for (int i = 0; i < 3; ++i) {
    Sum none{};
    const size_t before = heap_bytes();
    run_one(seed, files, none);
    const size_t after = heap_bytes();
    left = after > before ? after - before : 0;
    if (left <= kLeakBytes) return;
  }
  fail("%zu bytes of the heap are left each time", left);
}

// In a process of its own: nothing of one world is in the next, so that a seed alone replays it.
void run_seed(uint64_t seed, const engine::TempRepository& files, Sum& sum) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(number, &on_signal);
    run_one(seed, files, sum);
    if (seed % kLooksForLeaks == 0) expect_no_leak(seed, files);
    ++sum.worlds;
    sum.hash ^= trace_hash();
    sum.switches += switches();
    sum.cpu_us += static_cast<uint64_t>(std::clock()) * 1'000'000 / CLOCKS_PER_SEC;
    ::_exit(0);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) std::exit(1);
}

// A seed that is printed would be worth little if it showed another world the next time.
void expect_same_again(uint64_t seed, const engine::TempRepository& files) {
  void* const shared =
      ::mmap(nullptr, sizeof(Sum), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) std::exit(2);
  Sum& twice = *new (shared) Sum{};
  for (int i = 0; i < 2; ++i) run_seed(seed, files, twice);
  if (twice.hash != 0) {  // the two are added by exclusive or
    std::fprintf(stderr, "simulation: seed %llu is not the same world twice\n",
                 static_cast<unsigned long long>(seed));
    std::exit(1);
  }
  ::munmap(shared, sizeof(Sum));
}

void print(const Sum& sum) {
  std::printf(
      "simulation: %llu worlds (mpmc %llu, spsc %llu, naive %llu, batched %llu, inline %llu), "
      "%llu histories, %.1f us of CPU each; %llu answered, %llu refused "
      "(408 %llu, 429 %llu, 503 %llu, 504 %llu), %llu lost to one of %llu timeouts; "
      "%llu cancelled, %llu live changes, %llu early drains; %llu switches, hash %016llx\n",
      static_cast<unsigned long long>(sum.worlds),
      static_cast<unsigned long long>(sum.by_queue_type[0]),
      static_cast<unsigned long long>(sum.by_queue_type[1]),
      static_cast<unsigned long long>(sum.by_queue_type[2]),
      static_cast<unsigned long long>(sum.by_queue_type[3]),
      static_cast<unsigned long long>(sum.by_queue_type[4]),
      static_cast<unsigned long long>(sum.histories),
      static_cast<double>(sum.cpu_us) / static_cast<double>(std::max<uint64_t>(sum.histories, 1)),
      static_cast<unsigned long long>(sum.ok), static_cast<unsigned long long>(sum.refused),
      static_cast<unsigned long long>(sum.late_heads), static_cast<unsigned long long>(sum.full),
      static_cast<unsigned long long>(sum.unavailable), static_cast<unsigned long long>(sum.late),
      static_cast<unsigned long long>(sum.unanswered),
      static_cast<unsigned long long>(sum.timeouts), static_cast<unsigned long long>(sum.cancelled),
      static_cast<unsigned long long>(sum.swaps), static_cast<unsigned long long>(sum.drained),
      static_cast<unsigned long long>(sum.switches), static_cast<unsigned long long>(sum.hash));
}

// A world in which something never happens shows nothing about it.
void expect_all_happened(const Sum& sum) {
  const std::pair<const char*, uint64_t> events[] = {
      {"mpmc", sum.by_queue_type[0]},   {"spsc", sum.by_queue_type[1]},
      {"naive", sum.by_queue_type[2]},  {"batched", sum.by_queue_type[3]},
      {"inline", sum.by_queue_type[4]}, {"a slow request (408)", sum.late_heads},
      {"a full queue (429)", sum.full}, {"a deadline (504)", sum.late},
      {"a timeout", sum.timeouts},      {"a cancelled request", sum.cancelled},
      {"a live change", sum.swaps},     {"a drain at work", sum.drained}};
  for (const auto& [name, count] : events) {
    if (count == 0) fail("not once in all worlds: %s", name);
  }
}

}  // namespace
}  // namespace lumen::sim

int main(int argc, char** argv) {
  using namespace lumen::sim;  // NOLINT(google-build-using-namespace): this is its program
  // malloc's caches of free pieces would be counted as taken.
  if (std::getenv("GLIBC_TUNABLES") == nullptr) {
    ::setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
    ::execv("/proc/self/exe", argv);
  }
  uint64_t seed = 0;
  uint64_t worlds = UINT64_MAX;
  bool one_seed = false;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string_view value = argv[i + 1];
    if (name == "--seed") {
      seed = std::strtoull(argv[i + 1], nullptr, 10);
      one_seed = true;
    } else if (name == "--worlds") {
      worlds = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (name == "--fault" && value == "lost_wake_up") {
      faults.lost_wake_up = true;
    } else if (name == "--fault" && value == "double_completion") {
      faults.double_completion = true;
    } else if (name == "--fault" && value == "early_reuse") {
      faults.early_reuse = true;
    } else {
      std::fprintf(stderr, "simulation: what is %s %s?\n", argv[i], argv[i + 1]);
      return 2;
    }
  }
  const char* wanted_text = std::getenv("LUMEN_SIM_HISTORIES");
  const uint64_t wanted =
      wanted_text != nullptr ? std::strtoull(wanted_text, nullptr, 10) : 200'000;
  if (one_seed && worlds == UINT64_MAX) worlds = 1;
  const lumen::engine::TempRepository files;
  files.write("models/plus_one/1/model.onnx", "fake");
  lumen::allow_spinning(false);
  ::mallopt(M_PERTURB, 0x5a);  // what is freed holds no more what it held
  void* shared =
      ::mmap(nullptr, sizeof(Sum), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  Sum& sum = *new (shared) Sum{};
  while (sum.worlds < worlds && (one_seed || sum.histories < wanted)) run_seed(seed++, files, sum);
  if (!one_seed) {
    for (uint64_t again = 0; again < kReplays; ++again) expect_same_again(again, files);
  }
  print(sum);
  if (!one_seed && sum.histories >= 50'000) expect_all_happened(sum);
  return 0;
}
