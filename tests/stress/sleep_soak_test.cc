// The server under a load with gaps, beside two programs that never rest: no request waits a second
// while a worker that may take it sleeps, and no worker is ever lost. Every queue type, one and
// three workers, one and two I/O threads; the fake backend, unix sockets, everything else as it is
// served. ./dev soak gives LUMEN_SOAK_REQUESTS, a queue type; seeded by LUMEN_STRESS_SEED
// (printed).
// Threads: clients and the server's; the test's own watches. Memory: the heap. Errors: by gtest.
#include <lumen/base/clock.h>
#include <lumen/base/doorbell.h>

#include "support/fake_server.h"
#include "support/stress.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace lumen::server {
namespace {

using models::QueueType;

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kOrdinaryRequests = 2'000;  // a queue type, over its shapes
constexpr uint64_t kRollCallEvery = 500;
// One park for every ten requests is wanted; the gaps grow until there are two.
constexpr uint64_t kRequestsAPark = 10;
// Several turns of the busy programs (3 ms each, the kernel's default): with 4 ms the worker of a
// machine with more such programs always had the next request before it had its turn, and never
// parked.
constexpr uint64_t kLongestGapUs = 20'000;
// Times the requests that are wanted, until they have parked often enough; more show that they
// never do.
constexpr uint64_t kMostRounds = 10;
// Of a client, one a connection: a push meets a worker that another push has just woken, or that is
// about to sleep.
constexpr uint64_t kMostAtOnce = 4;

struct Shape {
  QueueType type;
  uint32_t workers;
  uint32_t io_threads;
};
std::string name_of(const Shape& shape) {
  return std::string(models::name_of(shape.type)) + "_" + std::to_string(shape.workers) +
         "workers_" + std::to_string(shape.io_threads) + "io";
}
std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << name_of(shape); }

// On a doorbell that nobody wakes: the load has gaps, and the watch looks now and then.
void rest(uint64_t ns) {
  Doorbell nobody;
  (void)nobody.wait(nobody.prepare(), now_ns() + ns);
}

// A program that takes all the CPU that it is given, until this object goes.
class BusyProgram {
 public:
  BusyProgram() : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) (void)now_ns();
  }
  ~BusyProgram() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  BusyProgram(const BusyProgram&) = delete;
  BusyProgram& operator=(const BusyProgram&) = delete;

 private:
  pid_t pid_;
};

// A worker's thread as the kernel sees it: two equal ones that sleep are one sleep.
struct WorkerState {
  std::string task;
  std::string state;
  std::string switches;
  bool operator==(const WorkerState&) const = default;
};
std::vector<WorkerState> workers_that_sleep() {
  std::vector<WorkerState> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(entry.path() / "status");
    WorkerState worker{entry.path().filename(), "", ""};
    bool is_worker = false;
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("Name:")) is_worker = line.find("lumen-w") != std::string::npos;
      if (line.starts_with("State:")) worker.state = line.substr(7, 1);
      if (line.starts_with("voluntary_ctxt_switches:")) worker.switches = line;
    }
    if (is_worker && worker.state == "S") found.push_back(worker);
  }
  return found;
}
size_t workers_that_slept_for(uint64_t ns) {
  const std::vector<WorkerState> before = workers_that_sleep();
  rest(ns);
  const std::vector<WorkerState> after = workers_that_sleep();
  return static_cast<size_t>(std::ranges::count_if(before, [&](const WorkerState& one) {
    return std::ranges::find(after, one) != after.end();
  }));
}

// Those of one queue type; `inline` has no workers.
std::vector<Shape> shapes_of(QueueType type) {
  std::vector<Shape> all;
  for (const uint32_t workers : {1u, 3u}) {
    if (type == QueueType::kInline && workers > 1) continue;
    for (const uint32_t io_threads : {1u, 2u}) all.push_back({type, workers, io_threads});
  }
  return all;
}
std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (size_t type = 0; type < models::kQueueTypeNames.size(); ++type) {
    for (const Shape& shape : shapes_of(static_cast<QueueType>(type))) all.push_back(shape);
  }
  return all;
}

class SleepSoak : public FakeServer, public testing::WithParamInterface<Shape> {
 protected:
  SleepSoak() {
    options_.http_address = "off";
    options_.io_thread_count = GetParam().io_threads;
    options_.max_active_requests = 32;
    options_.engine.queue_type = GetParam().type;
    options_.engine.thread_count = GetParam().workers;
    // Else the I/O threads would run it, and no worker would ever sleep.
    if (GetParam().type == QueueType::kAuto) {
      control_->cost_ns = [](uint64_t rows) { return 70'000 * rows; };
    }
  }
  [[nodiscard]] bool has_workers() const { return GetParam().type != QueueType::kInline; }
  [[nodiscard]] uint64_t parks() const { return total("worker_parks"); }
  [[nodiscard]] bool has_parked_enough(uint64_t more = 1) const {
    return !has_workers() || parks() * kRequestsAPark >= requests_done.load() * more;
  }

  [[nodiscard]] std::string where() const {
    return std::to_string(requests_done.load()) +
           " requests before, LUMEN_STRESS_SEED=" + std::to_string(seed);
  }

  struct Client {
    std::atomic<uint64_t> waits_since_ns{0};  // 0: it does not wait
    std::thread thread;
  };

  static void pause(std::mt19937_64& random, uint64_t longest_us) {
    const uint64_t ns = random() % (1 + longest_us * 1000);
    if (random() % 3 == 0) return;
    if (ns > 60'000) {
      rest(ns);
    } else {
      for (const uint64_t until = now_ns() + ns; now_ns() < until;) {
      }
    }
  }
  void run_client(Client& client, uint64_t client_seed, uint64_t until_done) {
    std::mt19937_64 random(client_seed);
    std::vector<HttpClient> connections;
    connections.reserve(kMostAtOnce);
    for (uint64_t i = 0; i < kMostAtOnce; ++i) {
      connections.push_back(unix_client());
    }
    while (requests_done.load() < until_done && !failed.load()) {
      const uint64_t count = 1 + random() % kMostAtOnce;
      client.waits_since_ns.store(now_ns());
      for (uint64_t i = 0; i < count; ++i) {
        if (!connections[i].send(infer_bytes)) failed.store(true);
      }
      for (uint64_t i = 0; i < count && !failed.load(); ++i) {
        if (connections[i].read().status != 200) failed.store(true);
      }
      longest_ns = std::max(longest_ns.load(), now_ns() - client.waits_since_ns.exchange(0));
      requests_done.fetch_add(count);
      pause(random, gap_us.load());
    }
  }

  // While a request waits for a second: a worker that may take it must not sleep.
  void check_waiting(std::deque<Client>& clients) {
    for (Client& client : clients) {
      const uint64_t since_ns = client.waits_since_ns.load();
      if (since_ns == 0 || now_ns() - since_ns < kSecondNs) continue;
      const size_t sleepers = workers_that_slept_for(kSecondNs / 20);
      if (client.waits_since_ns.load() != since_ns) continue;
      // With spsc the request may be for a worker that runs; with inline nobody else can take it.
      const size_t wrong = GetParam().type == QueueType::kSpsc ? GetParam().workers : 1;
      if (has_workers() && sleepers < wrong) continue;
      ADD_FAILURE() << "a request has waited for a second, and " << sleepers << " of "
                    << GetParam().workers << " workers sleep; " << where();
      failed.store(true);
    }
  }
  // Longer gaps until the workers park often enough, shorter ones where they do so anyway.
  void adjust_gaps() {
    const uint64_t now_us = gap_us.load();
    gap_us.store(has_parked_enough(2) ? std::max<uint64_t>(now_us * 9 / 10, 20)
                                      : std::min<uint64_t>(now_us + now_us / 4, kLongestGapUs));
  }
  void run_load(uint64_t until_done) {
    std::deque<Client> clients;
    for (uint32_t i = 0; i <= GetParam().io_threads; ++i) {
      Client& client = clients.emplace_back();
      client.thread = std::thread([this, &client, client_seed = seed + 97 * rounds + i,
                                   until_done] { run_client(client, client_seed, until_done); });
    }
    ++rounds;
    while (requests_done.load() < until_done && !failed.load()) {
      rest(kSecondNs / 200);
      check_waiting(clients);
      adjust_gaps();
    }
    if (failed.load()) server_->drain();  // so that a request that waits for ever ends
    for (Client& client : clients) client.thread.join();
  }

  // As many requests as workers, one after the other, while no model gets done: each finds a
  // worker. One that sleeps where no wake finds it is found out here.
  void call_the_roll() {
    if (!has_workers() || failed.load()) return;
    control_->hold();
    std::deque<HttpClient> clients;
    for (uint32_t i = 1; i <= GetParam().workers; ++i) {
      clients.push_back(unix_client());
      ASSERT_TRUE(clients.back().send(infer_bytes));
      if (control_->wait_until_held(i, kSecondNs)) continue;
      // Those that have one sleep too, in the gate. A machine so busy that nobody ran is no fault.
      if (workers_that_slept_for(kSecondNs / 20) == GetParam().workers &&
          !control_->wait_until_held(i, 0)) {
        ADD_FAILURE() << i << " requests, " << i - 1 << " workers have one, the others sleep; "
                      << where();
        failed.store(true);
        break;
      }
      ASSERT_TRUE(control_->wait_until_held(i, 30 * kSecondNs)) << where();
    }
    control_->release();
    if (failed.load()) return server_->drain();
    for (HttpClient& client : clients) EXPECT_EQ(client.read().status, 200);
    requests_done.fetch_add(GetParam().workers);
  }

  const uint64_t seed = test::stress_seed();
  const std::string infer_bytes = binary_infer("plus_one", "x", std::string(16, '\0'));
  std::atomic<uint64_t> requests_done{0};
  std::atomic<uint64_t> longest_ns{0};
  std::atomic<uint64_t> gap_us{100};
  std::atomic<bool> failed{false};
  uint64_t rounds = 0;
};

TEST_P(SleepSoak, NoRequestWaitsASecondWhileAWorkerThatMayTakeItSleeps) {
  const std::array<BusyProgram, 2> busy;  // before any thread is made
  start();
  ASSERT_FALSE(HasFailure());
  const uint64_t of_a_type = test::number_from("LUMEN_SOAK_REQUESTS", kOrdinaryRequests);
  const uint64_t wanted = of_a_type / shapes_of(GetParam().type).size();
  const uint64_t begin_ns = now_ns();
  while (!failed.load() && requests_done.load() < kMostRounds * wanted &&
         (requests_done.load() < wanted || !has_parked_enough())) {
    run_load(requests_done.load() + std::min(kRollCallEvery, wanted));
    call_the_roll();
  }
  std::printf("%s: %llu requests, %llu parks, longest wait %llu ms, %llu s\n",
              name_of(GetParam()).c_str(), static_cast<unsigned long long>(requests_done.load()),
              static_cast<unsigned long long>(parks()),
              static_cast<unsigned long long>(longest_ns.load() / 1'000'000),
              static_cast<unsigned long long>((now_ns() - begin_ns) / kSecondNs));
  EXPECT_FALSE(failed.load());
  EXPECT_TRUE(has_parked_enough())
      << parks() << " parks in " << requests_done.load() << " requests";
}

INSTANTIATE_TEST_SUITE_P(Shapes, SleepSoak, testing::ValuesIn(shapes()),
                         [](const auto& one) { return name_of(one.param); });

}  // namespace
}  // namespace lumen::server
