// See the header.
#include "simulation/light_world.h"

#include "simulation/backend.h"
#include "simulation/fibers.h"
#include "simulation/network.h"
#include "support/http_client.h"
#include "support/wrapping_backend.h"

#include <lumen/models/infer_request.h>
#include <lumen/models/model_repository.h>
#include <lumen/server/server.h>
#include <lumen/service/dispatcher.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lumen::sim {
namespace {

constexpr uint64_t kUs = 1'000;
constexpr uint64_t kMs = 1'000'000;
constexpr const char* kHeavy = kModels[0];
constexpr const char* kLight = kModels[1];
constexpr size_t kLightRequests = 40;
// Longer than any reply takes, which waits for some heavy runs.
constexpr uint64_t kPatienceNs = 10'000 * kMs;

bool is_of(const models::InferRequest& request, const char* model) {
  return request.model->metadata().name == model;
}

// Follows the light request from its submission to its run, and counts the heavy runs that begin
// meanwhile. The light model has one client, so it has one request at a time.
class Waits final : public service::Step {
 public:
  uint64_t requests = 0;
  uint64_t beside_heavy = 0;  // of these: a heavy run began after they were announced

  service::StepOutcome before(service::Call& call) noexcept override {
    if (!is_of(call.infer, kLight)) return service::StepOutcome::kNext;
    if (light_ != nullptr) fail("a light request is submitted while one waits");
    light_ = &call.infer;
    submitter_ = this_thread();
    is_announced_ = false;
    heavy_runs_.clear();
    return service::StepOutcome::kNext;
  }
  // The thread that has submitted it has ended its turn, and has woken workers by then.
  void begin_turn() noexcept {
    if (light_ != nullptr && submitter_ == this_thread()) is_announced_ = true;
  }
  void begin_run(const models::InferRequest& request) noexcept {
    if (light_ == nullptr) return;
    if (&request == light_) {
      ++requests;
      if (!heavy_runs_.empty()) ++beside_heavy;
      light_ = nullptr;
    } else if (is_of(request, kHeavy) && is_announced_ && !is_taken()) {
      if (++heavy_runs_[this_thread()] > 1) {
        fail("a worker begins a second heavy run, and a light request that was there before waits");
      }
    }
  }
  [[nodiscard]] bool is_over() const noexcept { return light_ == nullptr; }

 private:
  // A model is charged for a request when a worker takes it.
  [[nodiscard]] bool is_taken() const noexcept { return light_->share_ns != 0; }

  const models::InferRequest* light_ = nullptr;  // not begun
  const void* submitter_ = nullptr;
  bool is_announced_ = false;
  std::map<const void*, int> heavy_runs_;  // by worker, since it was announced
};

// The time of a run of each model, give or take a half. The heavy one stays above
// ExpressLane::kMostNs: below it goes to the express lane too, and a light request that waits there
// for one such run sees other workers begin several.
struct Costs {
  uint64_t heavy_ns = 3 * kMs + random().below(8 * kMs);
  uint64_t light_ns = 2 * kUs + random().below(random().one_in(2) ? 20 * kUs : 300 * kUs);
};

class TimedInstance final : public models::Instance {
 public:
  TimedInstance(std::unique_ptr<models::Instance> inner, const Costs& costs, Waits& waits)
      : inner_(std::move(inner)), costs_(costs), waits_(waits) {}
  models::StartOutcome start(models::InferRequest& request,
                             void (*done)(models::InferRequest&) noexcept) noexcept override {
    // A client's request; the others are the engine's, to measure.
    if (request.times.received_ns != 0) waits_.begin_run(request);
    const uint64_t usual_ns = is_of(request, kHeavy) ? costs_.heavy_ns : costs_.light_ns;
    let_time_pass_ns(usual_ns * (50 + random().below(100)) / 100);
    return inner_->start(request, done);
  }

 private:
  std::unique_ptr<models::Instance> inner_;
  const Costs& costs_;
  Waits& waits_;
};

server::ServerOptions some_options(const models::TempRepository& files, Waits& waits) {
  server::ServerOptions options;
  options.http_address = "127.0.0.1:0";
  options.unix_path = (files.path() / "socket").string();
  options.model_repository = files.path() / "models";
  options.pin_threads.mode = PinThreads::Mode::kOff;
  options.spin = server::SpinMode::kOff;
  options.io_thread_count = static_cast<uint32_t>(1 + random().below(2));
  options.steps = {&waits};
  engine::EngineConfig& engine = options.engine;
  engine.queue_type = random().one_in(2) ? models::QueueType::kMpmc : models::QueueType::kAuto;
  engine.policy = faults.fifo_policy ? engine::Policy::kFifo : engine::Policy::kFair;
  engine.allocator_type = static_cast<models::AllocatorType>(random().below(2));
  engine.thread_count = static_cast<uint32_t>(1 + random().below(3));
  engine.batch_size = 1;
  engine.queue_capacity = 64;
  return options;
}

// A client that waits for each reply.
class Client {
 public:
  explicit Client(const char* model)
      : request_(server::post_request("/v2/models/" + std::string(model) + "/infer",
                                      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],)"
                                      R"("data":[1,2,3,4]}]})")) {}
  void ask() {
    if (wire_ == nullptr) wire_ = connect_wire(false);
    if (wire_ == nullptr) fail("nobody listens");
    write_wire(*wire_, request_);
    size_t end = std::string::npos;
    std::string reply;
    while (end == std::string::npos || reply.size() < end) {
      const std::string more = read_wire(*wire_, time_ns() + kPatienceNs);
      if (more.empty()) fail("no reply comes");
      reply += more;
      const size_t head_end = reply.find("\r\n\r\n");
      if (head_end == std::string::npos) continue;
      constexpr std::string_view kLength = "\r\nContent-Length: ";
      const size_t at = reply.find(kLength) + kLength.size();
      end = head_end + 4 + std::strtoul(reply.c_str() + at, nullptr, 10);
    }
    if (!reply.starts_with("HTTP/1.1 200")) fail("not answered: %s", reply.c_str());
  }
  ~Client() {
    if (wire_ != nullptr) end_wire(*wire_);
  }

 private:
  const std::string request_;
  std::shared_ptr<Wire> wire_;
};

}  // namespace

void live_with_light_model(const models::TempRepository& files, Sum& sum) {
  // See the header.
  allow_long_holds(false);
  for (const char* name : {kModels[0], kModels[1], kModelThatGoes}) {
    files.write("models/" + std::string(name) + "/config.json", "{}");
  }
  Waits waits;
  const Costs costs;
  auto control = std::make_shared<models::FakeControl>();
  control->models_that_fail_to_load.insert(kModelThatDoesNotLoad);
  const server::ServerOptions options = some_options(files, waits);
  auto started = server::Server::start(
      options,
      std::make_unique<models::WrappingBackend>(
          models::make_fake_backend(control), [&](std::unique_ptr<models::Instance> inner) {
            return std::make_unique<TimedInstance>(std::move(inner), costs, waits);
          }));
  if (!started.ok()) fail("the server does not start: %s", started.status().c_message());
  on_turn = [&] { waits.begin_turn(); };
  std::atomic<bool> is_over{false};
  uint64_t histories = 0;
  std::vector<std::thread> clients;
  for (size_t i = 2 + random().below(5); i > 0; --i) {
    clients.emplace_back([&] {
      Client client(kHeavy);
      for (; !is_over.load(); ++histories) {
        client.ask();
        if (random().one_in(4)) let_time_pass_ns(random().below(10 * kMs));
      }
    });
  }
  clients.emplace_back([&] {
    Client client(kLight);
    for (size_t i = 0; i < kLightRequests; ++i, ++histories) {
      client.ask();
      if (!waits.is_over()) fail("a light request was answered and had not run");
      if (random().one_in(2)) let_time_pass_ns(random().below(3 * kMs));
    }
    is_over.store(true);
  });
  for (std::thread& client : clients) client.join();
  on_turn = [] {};
  (*started)->drain();
  *started = nullptr;
  ++sum.by_queue_type[static_cast<size_t>(options.engine.queue_type)];
  ++sum.light_worlds;
  sum.light_requests += waits.requests;
  sum.light_waits += waits.beside_heavy;
  sum.histories += histories;
}

}  // namespace lumen::sim
