// Three passes over one server: a warm-up, the measured requests on kept connections, and as many
// with a connection each. The passes are told apart in the telemetry file by their request id.
#include <lumen/client/measure.h>

#include <lumen/client/bench_report.h>
#include <lumen/client/load_run.h>
#include <lumen/client/metrics_reader.h>
#include <lumen/client/model_info.h>
#include "client/child_server.h"
#include "client/telemetry_csv.h"

#include <algorithm>
#include <system_error>

namespace lumen::client {

namespace {

using client::ConnectionUse;
using client::LoadPlan;

// Enough for a small model's caches, branch predictors and batch sizes; a fraction of a second on a
// large one.
constexpr uint64_t kMaxWarmUpRequests = 200;

struct Passes {
  LoadPlan warm_up;
  LoadPlan measured;
  LoadPlan connection;
};

Passes make_passes(const MatrixPlan& plan, const client::Target& target,
                   const client::ModelInfo& model, const std::string& id) {
  std::vector<client::InputTensor> inputs;
  inputs.reserve(model.inputs.size());
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    inputs.push_back(client::random_input(model.inputs[i], 1 + i));
  }
  const auto request = [&](std::string_view name, ConnectionUse use) {
    return client::build_request(target, model, inputs, name, use);
  };
  Passes passes;
  passes.warm_up.target = target;
  passes.warm_up.clients = plan.clients;
  passes.warm_up.poll = plan.poll;
  passes.measured = passes.connection = passes.warm_up;
  passes.warm_up.request = request("warm-up", ConnectionUse::kKept);
  passes.warm_up.requests =
      std::clamp<uint64_t>(plan.requests / 4, plan.clients, kMaxWarmUpRequests + plan.clients);
  // Each connection's first request is dearer than the others; it is not one of the measured.
  passes.measured.warm_up_request = passes.warm_up.request;
  passes.measured.warm_up_requests = plan.clients;
  passes.measured.request = request(id, ConnectionUse::kKept);
  passes.measured.requests = plan.requests;
  passes.connection.request = request("connection", ConnectionUse::kOneRequest);
  passes.connection.requests = plan.requests;
  passes.connection.new_connection = true;
  return passes;
}

Result<std::unique_ptr<client::Tally>> run_pass(const LoadPlan& plan, const char* name,
                                                const std::atomic<bool>& stop) {
  auto tally = client::run_load(plan, stop);
  // relaxed: nothing else is read because of it.
  if (stop.load(std::memory_order_relaxed)) {
    return Status::error(Code::kUnavailable, "stopped");
  }
  if (tally->ok_count() == plan.requests) return tally;
  return Status::error(Code::kUnavailable, "%s: %llu of %llu requests failed (%s): %s", name,
                       static_cast<unsigned long long>(plan.requests - tally->ok_count()),
                       static_cast<unsigned long long>(plan.requests),
                       client::errors_text(*tally).c_str(), tally->first_error.c_str());
}

double us(double ns) noexcept { return ns / 1000; }
double us(uint64_t ns) noexcept { return static_cast<double>(ns) / 1000; }

// The server's counts, a moment's view; absent if it has no /metrics.
struct ServerSums {
  std::optional<double> heap_calls, arena_bytes, rows, executions;
};

ServerSums read_server_sums(const client::Target& target, const std::string& model) {
  ServerSums sums;
  const auto metrics = client::read_metrics(target);
  if (!metrics) return sums;
  sums.heap_calls = metrics->sum("lumen_request_heap_calls_total");
  sums.arena_bytes = metrics->sum("lumen_request_arena_bytes_total");
  sums.rows = metrics->sum("lumen_inference_total", {{"model", model}});
  sums.executions = metrics->sum("lumen_execution_total", {{"model", model}});
  return sums;
}

std::optional<double> per(const std::optional<double>& before, const std::optional<double>& after,
                          double count) {
  if (!before || !after || count <= 0) return std::nullopt;
  return (*after - *before) / count;
}

Result<MatrixValues> measure_passes(const Passes& passes, const std::string& model,
                                    const std::atomic<bool>& stop) {
  auto warm_up = run_pass(passes.warm_up, "warm-up", stop);
  if (!warm_up.ok()) return warm_up.status();
  const ServerSums before = read_server_sums(passes.measured.target, model);
  auto measured = run_pass(passes.measured, "requests", stop);
  if (!measured.ok()) return measured.status();
  const ServerSums after = read_server_sums(passes.measured.target, model);
  auto connection = run_pass(passes.connection, "with a connection each", stop);
  if (!connection.ok()) return connection.status();

  MatrixValues values;
  const auto latency = (*measured)->latency.summary();
  values[Value::kRoundTripMean] = us(latency.mean);
  values[Value::kRoundTripP50] = us(latency.p50);
  values[Value::kRoundTripP99] = us(latency.p99);
  values[Value::kPerSecond] = (*measured)->per_second;
  const auto connect = (*connection)->connect.summary();
  values[Value::kConnectMean] = us(connect.mean);
  values[Value::kConnectP99] = us(connect.p99);
  const auto count =
      static_cast<double>(passes.measured.requests + passes.measured.warm_up_requests);
  values[Value::kHeapCalls] = per(before.heap_calls, after.heap_calls, count);
  values[Value::kArenaBytes] = per(before.arena_bytes, after.arena_bytes, count);
  if (before.executions && after.executions) {
    values[Value::kRows] = per(before.rows, after.rows, *after.executions - *before.executions);
  }
  return values;
}

}  // namespace

std::filesystem::path telemetry_path(const MatrixPlan& plan, const std::string& queue_type,
                                     const std::string& allocator_type) {
  return std::filesystem::absolute(plan.out) / "micro" /
         (plan.model + "_" + queue_type + "_" + allocator_type + ".csv");
}

Result<MatrixValues> measure(const MatrixPlan& plan, const std::string& queue_type,
                             const std::string& allocator_type, uint32_t round,
                             const std::atomic<bool>& stop) {
  const std::filesystem::path csv = telemetry_path(plan, queue_type, allocator_type);
  std::error_code ignored;  // a folder that can't be made is the server's to report
  std::filesystem::create_directories(csv.parent_path(), ignored);
  if (round == 1) std::filesystem::remove(csv, ignored);
  std::vector<std::string> arguments = {"serve",
                                        "--http",
                                        "127.0.0.1:0",
                                        "--unix",
                                        "off",
                                        "--model-repository",
                                        plan.model_repository.native(),
                                        "--queue-type",
                                        queue_type,
                                        "--allocator-type",
                                        allocator_type,
                                        "--telemetry-csv-path",
                                        csv.native()};
  arguments.insert(arguments.end(), plan.server_arguments.begin(), plan.server_arguments.end());
  auto server = ChildServer::start(plan.executable, arguments);
  if (!server.ok()) return server.status();
  auto target = client::parse_target("http://" + (*server)->http_address());
  if (!target.ok()) return target.status();
  auto model = client::read_model_info(*target, plan.model, "");
  if (!model.ok()) return model.status();

  const std::string id = "measured-" + std::to_string(round);
  const Passes passes = make_passes(plan, *target, *model, id);
  auto values = measure_passes(passes, plan.model, stop);
  if (!values.ok()) return values.status();
  // The file is complete when the server has ended.
  LUMEN_RETURN_IF_ERROR((*server)->stop());
  auto residency = read_queue_residency(csv, id);
  if (!residency.ok()) return residency.status();
  (*values)[Value::kQueueMean] = residency->mean_us;
  (*values)[Value::kQueueP99] = residency->p99_us;
  return values;
}

}  // namespace lumen::client
