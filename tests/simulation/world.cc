// See the header.
#include "simulation/world.h"

#include "simulation/backend.h"
#include "simulation/client.h"
#include "simulation/fibers.h"
#include "simulation/http2_client.h"
#include "support/share_runs.h"

#include <lumen/memory/mapping.h>
#include <lumen/server/server.h>

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace lumen::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr size_t kHistoriesOfAWorld = 200;
// Beside the memory of requests: connections, a second configuration's workers; and of each client
// its largest request, as values, as text, under way, and its reply.
constexpr size_t kHeapOfOthers = 6 << 20;
constexpr size_t kHeapOfAClient = 8 << 20;

engine::EngineConfig some_config() {
  engine::EngineConfig config;
  config.queue_type = static_cast<models::QueueType>(random().below(6));
  config.policy = static_cast<engine::Policy>(random().below(3));
  config.allocator_type = static_cast<models::AllocatorType>(random().below(2));
  config.thread_count = static_cast<uint32_t>(1 + random().below(3));
  config.batch_size = random().one_in(2) ? 1 : 4;
  config.max_queue_delay_us = random().one_in(2) ? 0 : 200;
  config.queue_capacity = size_t{2} << random().below(5);
  config.default_timeout_us = random().one_in(3) ? 500 + random().below(20'000) : 0;
  config.latency_budget_us = random().one_in(4) ? 2'000 + random().below(50'000) : 0;
  return config;
}

server::ServerOptions some_options(const models::TempRepository& files) {
  server::ServerOptions options;
  options.http_address = "127.0.0.1:0";
  options.unix_path = (files.path() / "socket").string();
  options.model_repository = files.path() / "models";
  options.engine = some_config();
  options.pin_threads.mode = PinThreads::Mode::kOff;
  options.spin = server::SpinMode::kOff;
  options.io_thread_count = static_cast<uint32_t>(1 + random().below(2));
  options.max_body_bytes = 1024 * 1024;
  options.max_connections = 2 + random().below(6);
  options.max_active_requests = 2 + random().below(6);
  // As little memory as it may be given, or somewhat more.
  if (random().one_in(2)) {
    options.max_memory_bytes = server::least_memory_bytes(options) + random().below(256 * 1024);
  }
  options.drain_timeout_ns = random().one_in(2) ? 100 * kMs : random().below(2 * kMs);
  options.timeouts = {.head_ns = 100 * kMs,
                      .body_period_ns = 100 * kMs,
                      .body_min_bytes = 64,
                      .write_stall_ns = 160 * kMs,
                      .idle_ns = 300 * kMs,
                      .linger_ns = 50 * kMs,
                      .room_ns = 40 * kMs};
  return options;
}

// The resident bytes of a region behind its first `base_bytes`.
size_t resident_bytes(std::span<std::byte> region, size_t base_bytes) {
  static std::vector<unsigned char> pages;
  const std::span<std::byte> rest = region.subspan(base_bytes);
  pages.resize(rest.size() / kPageBytes + 1);
  if (::mincore(rest.data(), rest.size(), pages.data()) != 0) fail("mincore");
  const auto end = pages.begin() + static_cast<ptrdiff_t>(rest.size() / kPageBytes);
  return kPageBytes * static_cast<size_t>(std::count_if(
                          pages.begin(), end, [](unsigned char page) { return (page & 1u) != 0; }));
}

// Small, so that answers evict each other; of some worlds they end after a few requests.
std::string some_response_cache() {
  static constexpr const char* kPolicies[] = {"lru", "lfu", "s3fifo"};
  static constexpr const char* kTtlsMs[] = {"1", "20", "3600000"};
  return std::string(R"({"response_cache": {"enable": true, "max_bytes": 65536, "policy": ")") +
         kPolicies[random().below(3)] + R"(", "ttl_ms": )" + kTtlsMs[random().below(3)] + "}}";
}

// A small request then asks for 1.5 to 5 MiB before it is read, and the least memory that the
// server starts with holds some of these.
constexpr size_t kWideRepeats = 512;

bool is_wanted(const Status& status) {
  return status.message().find("as the test wants") != std::string_view::npos;
}

class World {
 public:
  World(const models::TempRepository& files, Sum& sum)
      : files_(files), sum_(sum), options_(some_options(files)), control_(some_control()) {}
  void live();

 private:
  void start();
  void make_wide();
  void look() const;
  void change_configuration();
  void change_models();
  void reload();
  void compare() const;
  void compare_kept_pages();
  void add_up();
  // Runs `act` while instances may be too many for the backend.
  Status with_few_instances(const std::function<Status()>& act);

  const models::TempRepository& files_;
  Sum& sum_;
  server::ServerOptions options_;
  std::shared_ptr<models::FakeControl> control_;
  service::ShareRuns share_;
  Tally tally_;
  Regions regions_;
  std::unique_ptr<server::Server> server_;
  size_t clients_ = 1;
  size_t heap_before_ = 0;
  size_t base_bytes_ = 0;  // of each region, charged whether it is touched or not
  bool leaves_ = false;
  bool caches_ = false;
  bool is_wide_ = random().one_in(4);
};

void World::start() {
  ++sum_.by_queue_type[static_cast<size_t>(options_.engine.queue_type)];
  const bool shares = random().one_in(2);
  caches_ = !shares && random().one_in(2);
  if (shares) options_.steps = {&share_};
  tally_.repeats = shares || caches_;
  if (!tally_.repeats && options_.max_memory_bytes != 0) tally_.large_one_in = 12;
  if (is_wide_) make_wide();
  const std::string config = caches_ ? some_response_cache() : "{}";
  for (const char* name : {kModels[0], kModels[1], kModelThatGoes}) {
    files_.write("models/" + std::string(name) + "/config.json", config);
  }
  // Few, so that some are refused; of some worlds they are dropped after a pause of their client.
  files_.write("models/" + std::string(kModelWithState) + "/config.json",
               R"({"sequences": {"states": [{"input": "h", "output": "h_out", "initial_file": "h"}],
                   "controls": [{"input": "start", "kind": "start", "values": [0, )" +
                   std::to_string(kToldOfStart) + R"(]}], "most": )" +
                   std::to_string(1 + random().below(8)) + R"(, "idle_ms": )" +
                   std::to_string(random().one_in(3) ? 1 : 60'000) + "}}");
  const std::array<float, 4> first = {kFirstState, kFirstState, kFirstState, kFirstState};
  files_.write("models/" + std::string(kModelWithState) + "/initial_state/h",
               {reinterpret_cast<const char*>(first.data()), sizeof(first)});
  auto started = server::Server::start(options_, make_backend(control_, regions_));
  if (!started.ok()) fail("the server does not start: %s", started.status().c_message());
  server_ = std::move(*started);
  heap_before_ = heap_bytes();
  base_bytes_ = server_->counters().total("memory_reserved_bytes") / regions_.size();
  tally_.look = [this] { look(); };
}

void World::make_wide() {
  ++sum_.wide_worlds;
  tally_.reply_repeats = kWideRepeats;
  control_->repeats = kWideRepeats;
  Shape row;
  if (!row.append(Shape::kDynamic) || !row.append(4 * int64_t{kWideRepeats})) fail("a shape");
  control_->outputs.front().shape = row;
  options_.io_thread_count = 1;
  options_.max_connections = 8 + random().below(8);
  options_.max_active_requests = 8 + random().below(16);
  options_.max_memory_bytes = server::least_memory_bytes(options_);
}

// The bound holds at any moment: of reserved bytes, of resident pages, of the heap.
void World::look() const {
  const telemetry::Counters& counters = server_->counters();
  const size_t bound = counters.total("memory_bound_bytes");
  const size_t reserved = counters.total("memory_reserved_bytes");
  if (is_wide_ && counters.total("memory_waiting") > 0) ++sum_.waited_for_room;
  if (reserved > bound) fail("%zu bytes are reserved, of %zu", reserved, bound);
  if (options_.max_memory_bytes == 0) return;
  size_t there = 0;
  for (const std::span<std::byte> region : regions_) there += resident_bytes(region, 0);
  const size_t heap = heap_bytes();
  const size_t others = heap_before_ + kHeapOfOthers + clients_ * kHeapOfAClient;
  there += heap - std::min(heap, others);
  if (there > bound) fail("%zu bytes are taken, %zu more than may be", there, there - bound);
}

// No request is left: the contexts keep exactly the charged bytes.
void World::compare_kept_pages() {
  size_t kept = 0;
  for (const std::span<std::byte> region : regions_) kept += resident_bytes(region, base_bytes_);
  const size_t charged =
      server_->counters().total("memory_reserved_bytes") - regions_.size() * base_bytes_;
  if (kept > charged) fail("%zu bytes of pages are kept, and %zu are charged", kept, charged);
  sum_.most_kept_bytes = std::max(sum_.most_kept_bytes, uint64_t{kept});
}

Status World::with_few_instances(const std::function<Status()>& act) {
  const bool few = random().one_in(4);
  // relaxed, both: one thread in truth
  if (few) {
    control_->most_instances.store(control_->instances.load(std::memory_order_relaxed) +
                                       static_cast<uint32_t>(random().below(6)),
                                   std::memory_order_relaxed);
  }
  Status status = act();
  if (few) control_->most_instances.store(UINT32_MAX, std::memory_order_relaxed);
  return status;
}

void World::change_configuration() {
  for (size_t i = random().below(6); i > 0 && !leaves_; --i) {
    let_time_pass_ns(random().below(20 * kMs));
    const Status status = with_few_instances([&] { return server_->reconfigure(some_config()); });
    if (status.ok()) continue;
    if (!is_wanted(status)) fail("a change fails: %s", status.c_message());
    ++sum_.swaps_failed;
  }
}

void World::change_models() {
  using Is = Presence::Is;
  for (size_t i = random().below(8); i > 0 && !leaves_; --i) {
    let_time_pass_ns(random().below(15 * kMs));
    const bool was_there = tally_.presence.is == Is::kThere;
    if (was_there && random().one_in(3)) {
      reload();
      continue;
    }
    tally_.presence.become(Is::kChanging);
    const Status status =
        was_there ? server_->remove_model(kModelThatGoes, "")
                  : with_few_instances([&] { return server_->add_model(kModelThatGoes, ""); });
    tally_.presence.become(was_there == status.ok() ? Is::kGone : Is::kThere);
    if (status.ok()) {
      ++(was_there ? sum_.removed : sum_.added);
    } else if (!was_there && is_wanted(status)) {
      ++sum_.add_failed;
    } else if (!leaves_) {
      fail("a change of the models fails: %s", status.c_message());
    }
  }
}

// No request finds that the model is not there, whether another takes its place or not.
void World::reload() {
  static size_t changes = 0;  // another size, since the clock of a file system is coarse
  files_.write("models/" + std::string(kModelThatGoes) + "/1/model.onnx",
               "fake" + std::string(++changes % 100, ' '));
  const Status status = with_few_instances([&] { return server_->load_model(kModelThatGoes); });
  if (status.ok()) {
    ++sum_.reloaded;
  } else if (is_wanted(status)) {
    ++sum_.reload_failed;
  } else if (!leaves_) {
    fail("a model is not loaded anew: %s", status.c_message());
  }
}

// The server's counts and the clients'.
void World::compare() const {
  const telemetry::Counters& counters = server_->counters();
  if (counters.total("connections_open") != 0) fail("connections are counted open at the end");
  if (counters.total("memory_waiting") != 0) fail("requests are counted that wait for memory");
  if (!share_.is_empty()) fail("runs are shared that nobody makes");
  if (tally_.unanswered > counters.total("timeouts")) {
    fail("%llu requests have no answer, and only %llu timeouts were counted",
         static_cast<unsigned long long>(tally_.unanswered),
         static_cast<unsigned long long>(counters.total("timeouts")));
  }
  const uint64_t responses = counters.total("responses_2xx") + counters.total("responses_4xx") +
                             counters.total("responses_5xx");
  if (tally_.replies_ok + tally_.replies_refused > responses) {
    fail("more replies came than were sent");
  }
  const uint64_t parked = share_.shared + share_.failed + share_.promoted + share_.abandoned;
  if (share_.parked != parked) fail("calls that a step had parked are lost");
}

void World::add_up() {
  const telemetry::Counters& counters = server_->counters();
  sum_.histories += tally_.histories;
  sum_.cache_worlds += caches_ ? 1 : 0;
  sum_.ok += tally_.replies_ok;
  sum_.refused += tally_.replies_refused;
  sum_.unanswered += tally_.unanswered;
  sum_.late_heads += tally_.by_status[408];
  sum_.full += tally_.by_status[429];
  sum_.unavailable += tally_.by_status[503];
  sum_.late += tally_.by_status[504];
  sum_.failures += tally_.failures;
  sum_.not_there += tally_.not_there;
  sum_.compressed += tally_.compressed;
  sum_.streams += tally_.streams;
  sum_.calls += tally_.calls;
  sum_.streams_refused += tally_.streams_refused;
  sum_.sequence_replies += tally_.sequence_replies;
  sum_.sequences_refused += tally_.sequences_refused;
  sum_.timeouts += counters.total("timeouts");
  sum_.cancelled += counters.total("cancelled");
  sum_.swaps += counters.total("engine_swaps");
  for (const char* name : kEnsembles) {
    const models::Model* const model = server_->models().find(name, "");
    if (model != nullptr) sum_.ensembles += model->counters().total("execution");
  }
  for (const char* name : kModels) {
    const telemetry::ModelCounters model = server_->models().find(name, "")->counters();
    const uint64_t ran = model.total("run");
    sum_.packed += ran - std::min(ran, model.total("execution"));
    sum_.cache_hits += model.total("cache_hit");
    sum_.cache_shared += model.total("cache_shared");
    sum_.cache_misses += model.total("cache_miss");
  }
  sum_.memory_refused += counters.total("memory_refused");
  sum_.parked += share_.parked;
  sum_.shared += share_.shared;
  sum_.shared_failures += share_.failed;
  sum_.promoted += share_.promoted;
  sum_.abandoned += share_.abandoned;
}

void World::live() {
  start();
  clients_ = 1 + random().below(8);
  std::vector<std::thread> clients;
  clients.reserve(clients_);
  for (size_t i = 0; i < clients_; ++i) {
    const size_t histories = kHistoriesOfAWorld / clients_;
    if (random().one_in(3)) {
      clients.emplace_back([&, histories] { Http2Client(tally_).run(histories); });
    } else {
      clients.emplace_back([&, histories] { SimClient(tally_).run(histories); });
    }
  }
  std::thread changes([this] { change_configuration(); });
  std::thread models([this] { change_models(); });
  const bool drains_early = random().one_in(3);
  if (drains_early) {
    let_time_pass_ns(random().below(60 * kMs));
    ++sum_.drained;
  } else {
    for (std::thread& client : clients) client.join();
  }
  leaves_ = true;
  changes.join();
  if (!drains_early) models.join();
  tally_.draining = true;
  server_->drain();
  if (drains_early) {
    models.join();
    for (std::thread& client : clients) client.join();
  }
  compare();
  compare_kept_pages();
  add_up();
  server_ = nullptr;
  // relaxed, both: all threads are joined
  if (control_->registered_bytes.load(std::memory_order_relaxed) != 0) {
    fail("memory is left registered");
  }
  if (control_->live_instances.load(std::memory_order_relaxed) != 0) fail("instances are left");
}

void write_ensembles(const models::TempRepository& files) {
  for (const auto& [ensemble, second] :
       {std::pair(kEnsembles[0], kModels[1]), std::pair(kEnsembles[1], kModelThatGoes)}) {
    const std::string steps = std::string(R"({"model": ")") + kModels[0] +
                              R"(", "outputs": {"y": "between"}}, )" + R"({"model": ")" + second +
                              R"(", "inputs": {"x": "between"}})";
    files.write("models/" + std::string(ensemble) + "/config.json",
                R"({"ensemble": {"steps": [)" + steps + "]}}");
  }
}

}  // namespace

size_t heap_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

void write_models(const models::TempRepository& files) {
  for (const char* name :
       {kModels[0], kModels[1], kModelThatGoes, kModelThatDoesNotLoad, kModelWithState}) {
    files.write("models/" + std::string(name) + "/1/model.onnx", "fake");
  }
  write_ensembles(files);
}

void live(const models::TempRepository& files, Sum& sum) { World(files, sum).live(); }

}  // namespace lumen::sim
