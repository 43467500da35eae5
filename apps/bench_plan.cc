// Reads a model's metadata, makes its request and probes it: the steps of `lumen bench` before any
// load.
// Main thread; the heap; errors as bench_arguments.h says.
#include <lumen/client/load_run.h>
#include <lumen/client/report_parts.h>
#include <lumen/client/stop_flag.h>
#include <lumen/tensor/type_text.h>
#include "bench_arguments.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace {

using lumen::Result;
using lumen::Status;
namespace client = lumen::client;

uint64_t to_ns(double seconds) noexcept { return static_cast<uint64_t>(seconds * 1e9); }

// A file for a model with one input needs no name.
Result<std::vector<client::InputTensor>> make_inputs(const client::ModelInfo& model,
                                                     const BenchArguments& arguments) {
  std::vector<client::InputTensor> inputs;
  inputs.reserve(model.inputs.size());
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    inputs.push_back(client::random_input(model.inputs[i], arguments.seed + i));
  }
  for (const std::string& word : arguments.inputs) {
    const size_t equals = word.find('=');
    const bool named = equals != std::string::npos;
    if (!named && model.inputs.size() != 1) {
      return Status::error(lumen::Code::kInvalidArgument,
                           "--input %s: the model has %zu inputs; wanted NAME=FILE", word.c_str(),
                           model.inputs.size());
    }
    const std::string name = named ? word.substr(0, equals) : model.inputs[0].name;
    const auto found = std::ranges::find(model.inputs, name, &client::TensorInfo::name);
    if (found == model.inputs.end()) {
      return Status::error(lumen::Code::kNotFound, "--input %s: the model has no input '%s'",
                           word.c_str(), name.c_str());
    }
    const std::string path = named ? word.substr(equals + 1) : word;
    auto file = client::read_npy(path);
    if (!file.ok()) return file.status();
    auto input = client::input_of_file(*found, std::move(*file), path);
    if (!input.ok()) return input.status();
    inputs[static_cast<size_t>(found - model.inputs.begin())] = std::move(*input);
  }
  return inputs;
}

// One request before all others: a refusal is told once, and at once.
Status probe(client::LoadPlan plan) {
  plan.clients = plan.threads = 1;
  plan.requests = 1;
  plan.warm_up_requests = 0;
  plan.rate = 0;
  plan.in_flight = 1;
  plan.poll = false;
  plan.sequence_length = std::min(plan.sequence_length, 1U);
  const auto tally = client::run_load(plan, client::stop_flag);
  // relaxed: nothing else is read because of it.
  if (tally->ok_count() == 1 || client::stop_flag.load(std::memory_order_relaxed)) return {};
  return Status::error(lumen::Code::kUnavailable, "%s: a first request failed (%s): %s",
                       plan.target.url.c_str(), client::errors_text(*tally).c_str(),
                       tally->first_error.c_str());
}

// Why the transport of this URL can't do it.
Status check_transport(const client::Target& target, const BenchArguments& arguments, double rate) {
  if (target.is_bus() && (rate > 0 || arguments.new_connection || arguments.obey_retry_after)) {
    return Status::error(lumen::Code::kUnsupported,
                         "%s: over the bus there is a closed loop on kept connections alone; leave "
                         "--rate, --new-connection and --obey-retry-after out",
                         arguments.url.c_str());
  }
  if (!target.is_bus() && arguments.in_flight != 1) {
    return Status::error(
        lumen::Code::kUnsupported,
        "--in-flight %u: over HTTP and gRPC a client has one request in flight; wanted "
        "bus:/PATH, or more --clients",
        arguments.in_flight);
  }
  return {};
}

}  // namespace

int fail_bench(const Status& status) {
  const auto text = status.message();
  std::fprintf(stderr, "lumen bench: %.*s\n", static_cast<int>(text.size()), text.data());
  return 1;
}

Result<BenchPlan> make_plan(const BenchArguments& arguments, const std::string& model_name,
                            double rate) {
  auto target = client::parse_target(arguments.url);
  if (!target.ok()) return target.status();
  const client::TlsOptions& tls = arguments.tls;
  if (!tls.ca.empty() || !tls.cert.empty() || !tls.key.empty()) {
    LUMEN_RETURN_IF_ERROR(client::set_tls(*target, tls));
  }
  // Not an argument: those are seen by all users of the machine.
  const char* const key = std::getenv("LUMEN_API_KEY");
  LUMEN_RETURN_IF_ERROR(client::set_key(*target, key == nullptr ? "" : key));
  auto model = client::read_model_info(*target, model_name, arguments.version);
  if (!model.ok()) return model.status();
  auto inputs = make_inputs(*model, arguments);
  if (!inputs.ok()) return inputs.status();
  LUMEN_RETURN_IF_ERROR(check_transport(*target, arguments, rate));
  BenchPlan made;
  for (const client::InputTensor& input : *inputs) {
    if (!made.inputs_text.empty()) made.inputs_text += ", ";
    made.inputs_text += input.name + " " + lumen::type_text(input.type, input.shape);
  }
  client::LoadPlan& plan = made.plan;
  const auto use =
      arguments.new_connection ? client::ConnectionUse::kOneRequest : client::ConnectionUse::kKept;
  plan.sequence_length = arguments.sequence_length;
  plan.first_sequence = client::VariantChooser::some_first() >> 1;
  client::SequencePlaces* const places = plan.sequence_length > 0 ? &plan.sequence_places : nullptr;
  if (places != nullptr) {
    made.inputs_text += "; sequences of " + std::to_string(plan.sequence_length) + " requests";
  }
  plan.request = target->is_grpc ? client::build_grpc_request(*model, *inputs, places)
                                 : client::build_request(*target, *model, *inputs, {}, use, places);
  plan.model = model_name;
  plan.version = arguments.version;
  plan.inputs = std::move(*inputs);
  plan.in_flight = arguments.in_flight;
  if (arguments.repeat_ratio >= 0) {
    auto variants = client::InputVariants::create(plan.inputs);
    if (!variants.ok()) return variants.status();
    plan.variants = *variants;
    plan.varied_at = client::input_at(*target, plan.request, plan.inputs, variants->input());
    plan.repeat_ratio = arguments.repeat_ratio;
  }
  plan.target = std::move(*target);
  plan.threads = arguments.threads;
  plan.warm_up_ns = to_ns(arguments.warm_up_s);
  plan.duration_ns = to_ns(arguments.duration_s);
  plan.requests = arguments.requests;
  plan.rate = rate;
  plan.new_connection = arguments.new_connection;
  plan.obey_retry_after = arguments.obey_retry_after;
  plan.poll = arguments.poll;
  plan.timeout_ns = to_ns(arguments.timeout_s);
  LUMEN_RETURN_IF_ERROR(probe(plan));
  return made;
}
