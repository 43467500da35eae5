// The simulated worlds (world.h, light_world.h), all on one thread, one seed after another. See
// fibers.h, network.h, backend.h and client.h.
//   simulation [--seed N] [--worlds N]
//              [--fault lost_wake_up | double_completion | early_reuse | fifo_policy]
// LUMEN_SIM_HISTORIES: how many requests in all, where no --seed is given.
// Threads: one. Memory: the heap. Errors: status 1 with the failing seed.
#include "simulation/fibers.h"
#include "simulation/light_world.h"
#include "simulation/network.h"
#include "simulation/world.h"
#include "support/temp_repository.h"

#include <lumen/base/idle_strategy.h>

#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

namespace lumen::sim {
namespace {

constexpr uint64_t kReplays = 20;        // worlds that are run twice more and compared
constexpr uint64_t kLooksForLeaks = 16;  // one world in so many
constexpr uint64_t kLightWorlds = 8;     // one world in so many has a heavy and a light model
// Less than a byte for each request of a world; a static table of the C++ library may grow.
constexpr size_t kLeakBytes = 128;

void on_signal(int number) {
  std::signal(number, SIG_DFL);
  fail("signal %d", number);
}

void run_one(uint64_t seed, const models::TempRepository& files, Sum& sum) {
  begin_network();
  // None of those whose leaks are looked for.
  const bool is_light = seed % kLightWorlds == 3;
  run_world(seed, [&] { is_light ? live_with_light_model(files, sum) : live(files, sum); });
  expect_nothing_left();
  begin_network();  // lets go of its connections
  ::unlink((files.path() / "socket").c_str());
}

// The same world once more leaves no more behind. Objects that are made once a process may come
// late, in a repetition that took another way (the cost of a wake-up is a mean over the process's
// life), but not each time.
void expect_no_leak(uint64_t seed, const models::TempRepository& files) {
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
void run_seed(uint64_t seed, const models::TempRepository& files, Sum& sum) {
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
void expect_same_again(uint64_t seed, const models::TempRepository& files) {
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

struct Event {
  const char* name;
  uint64_t Sum::* count;
};
// A world in which something never happens shows nothing about it.
constexpr Event kEvents[] = {
    {"answered", &Sum::ok},
    {"refused", &Sum::refused},
    {"slow requests (408)", &Sum::late_heads},
    {"full queues (429)", &Sum::full},
    {"requests without a model (503)", &Sum::unavailable},
    {"deadlines (504)", &Sum::late},
    {"requests to a model that had gone (404)", &Sum::not_there},
    {"runs that failed (500)", &Sum::failures},
    {"timeouts", &Sum::timeouts},
    {"cancelled", &Sum::cancelled},
    {"ensembles whose last step has run", &Sum::ensembles},
    {"answered with the state of the request before", &Sum::sequence_replies},
    {"of sequences that were not live (400)", &Sum::sequences_refused},
    {"run in the call of another", &Sum::packed},
    {"replies that were compressed", &Sum::compressed},
    {"requests over HTTP/2", &Sum::streams},
    {"of these, calls of gRPC", &Sum::calls},
    {"or ended without a reply", &Sum::streams_refused},
    {"refused for memory", &Sum::memory_refused},
    {"live changes", &Sum::swaps},
    {"that failed", &Sum::swaps_failed},
    {"models added", &Sum::added},
    {"that failed", &Sum::add_failed},
    {"models removed", &Sum::removed},
    {"models whose place another took", &Sum::reloaded},
    {"that could not be loaded, while the old one served", &Sum::reload_failed},
    {"early drains", &Sum::drained},
    {"calls parked by a step", &Sum::parked},
    {"with their leader's reply", &Sum::shared},
    {"or its failure", &Sum::shared_failures},
    {"in its place", &Sum::promoted},
    {"late or cancelled", &Sum::abandoned},
    {"worlds with a heavy and a light model", &Sum::light_worlds},
    {"requests of light models there", &Sum::light_requests},
    {"of these beside a run of the heavy model that began", &Sum::light_waits},
    {"worlds with wide replies and the least memory", &Sum::wide_worlds},
    {"looks at requests that waited for memory there", &Sum::waited_for_room},
    {"worlds with a response cache", &Sum::cache_worlds},
    {"answered from it", &Sum::cache_hits},
    {"of these by another's run", &Sum::cache_shared},
    {"not answered from it", &Sum::cache_misses},
    {"most bytes of pages kept", &Sum::most_kept_bytes},
};

void print(const Sum& sum) {
  std::printf(
      "simulation: %llu worlds (mpmc %llu, spsc %llu, naive %llu, batched %llu, inline %llu, "
      "auto %llu), "
      "%llu histories, %.1f us of CPU each; %llu switches, hash %016llx\n",
      static_cast<unsigned long long>(sum.worlds),
      static_cast<unsigned long long>(sum.by_queue_type[0]),
      static_cast<unsigned long long>(sum.by_queue_type[1]),
      static_cast<unsigned long long>(sum.by_queue_type[2]),
      static_cast<unsigned long long>(sum.by_queue_type[3]),
      static_cast<unsigned long long>(sum.by_queue_type[4]),
      static_cast<unsigned long long>(sum.by_queue_type[5]),
      static_cast<unsigned long long>(sum.histories),
      static_cast<double>(sum.cpu_us) / static_cast<double>(std::max<uint64_t>(sum.histories, 1)),
      static_cast<unsigned long long>(sum.switches), static_cast<unsigned long long>(sum.hash));
  for (const Event& event : kEvents) {
    std::printf("  %llu %s\n", static_cast<unsigned long long>(sum.*event.count), event.name);
  }
  std::printf("  %llu lost to a timeout\n", static_cast<unsigned long long>(sum.unanswered));
}

void expect_all_happened(const Sum& sum) {
  for (const uint64_t worlds : sum.by_queue_type) {
    if (worlds == 0) fail("not all queue types were in a world");
  }
  for (const Event& event : kEvents) {
    if (sum.*event.count == 0) fail("not once in all worlds: %s", event.name);
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
    } else if (name == "--fault" && value == "fifo_policy") {
      faults.fifo_policy = true;
    } else {
      std::fprintf(stderr, "simulation: what is %s %s?\n", argv[i], argv[i + 1]);
      return 2;
    }
  }
  const char* wanted_text = std::getenv("LUMEN_SIM_HISTORIES");
  const uint64_t wanted =
      wanted_text != nullptr ? std::strtoull(wanted_text, nullptr, 10) : 200'000;
  if (one_seed && worlds == UINT64_MAX) worlds = 1;
  const lumen::models::TempRepository files;
  write_models(files);
  lumen::allow_spinning(false);
  ::mallopt(M_PERTURB, 0x5a);  // freed memory does not hold its old content
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
