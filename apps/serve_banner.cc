// Writes the banner. Main thread; the heap.
#include "serve_banner.h"

#include <lumen/net/socket.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

namespace {

using lumen::models::ModelState;
using lumen::models::QueueType;

// Twelve lines, of which five come before the models, one after, and one says how many were cut.
constexpr size_t kBannerModels = 5;

std::string tensor_list(const std::vector<lumen::models::TensorSpec>& tensors) {
  std::string text;
  for (const auto& tensor : tensors) {
    if (!text.empty()) text += ", ";
    text += tensor.name + " " + std::string(lumen::element_type_name(tensor.type)) + "[";
    for (size_t i = 0; i < tensor.shape.rank(); ++i) {
      if (i > 0) text += ",";
      text += std::to_string(tensor.shape[i]);
    }
    text += "]";
  }
  return text;
}

// The threads that run models, in number and in words.
struct Runners {
  uint32_t count;
  std::string text;
};

Runners runners_of(const lumen::server::ServerOptions& options, const lumen::CpuBudget& budget) {
  const bool is_inline = options.engine.queue_type == QueueType::kInline;
  uint32_t count = is_inline ? options.io_thread_count : options.engine.thread_count;
  if (count == 0) count = budget.count;
  std::string text = std::to_string(count) + (is_inline ? " I/O thread" : " worker");
  if (count != 1) text += "s";
  if (is_inline) text += count == 1 ? " that runs the models" : " that run the models";
  return {count, text};
}

// Its number is that of `lumen top` and of the CSV, where it stands beside the others.
std::string express_text(const lumen::server::ServerOptions& options, uint32_t workers) {
  if (options.engine.queue_type != QueueType::kAuto) return {};
  return "; worker " + std::to_string(workers) + " is the express worker";
}

std::string engine_text(const lumen::server::ServerOptions& options) {
  const lumen::engine::EngineConfig& engine = options.engine;
  std::string text(name_of(engine.queue_type));
  text.append(" x ").append(name_of(engine.allocator_type));
  const bool packs = engine.batch_size > 1 && (engine.queue_type == QueueType::kBatched ||
                                               engine.queue_type == QueueType::kInline ||
                                               engine.queue_type == QueueType::kAuto);
  text += packs ? ", up to " + std::to_string(engine.batch_size) + " rows an inference"
                : ", no packing of rows";
  if (engine.queue_type == QueueType::kBatched && engine.max_queue_delay_us > 0) {
    text += ", held back for up to " + std::to_string(engine.max_queue_delay_us) + " us";
  }
  if (engine.queue_type != QueueType::kInline) {
    text += ", " + std::to_string(engine.queue_capacity) + " may wait";
    const bool has_model_queues =
        engine.queue_type != QueueType::kSpsc && engine.queue_type != QueueType::kNaive;
    if (has_model_queues) text += " for each model, " + std::string(name_of(engine.policy));
  }
  return text;
}

// "12 MB", "3.4 MB", "1.2 GB": enough to compare with a machine's memory.
std::string megabytes_text(uint64_t bytes) {
  if (bytes < 100'000) return "under 0.1 MB";
  const bool is_large = bytes >= 1'000'000'000;
  const double value = static_cast<double>(bytes) / (is_large ? 1e9 : 1e6);
  char text[32];
  std::snprintf(text, sizeof(text), value < 10 ? "%.1f" : "%.0f", value);
  return std::string(text) + (is_large ? " GB" : " MB");
}

std::string absolute_text(const std::filesystem::path& path) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  return (error ? path : absolute).lexically_normal().string();
}

void print_models(const lumen::models::ModelRepository& repository, const ModelNote& note_of) {
  const auto& models = repository.models();
  for (size_t i = 0; i < std::min(models.size(), kBannerModels); ++i) {
    // A choice that nobody made by measuring says nothing new.
    const auto& choice = models[i]->choice();
    const bool was_measured =
        std::ranges::any_of(choice.tried, [](const auto& tried) { return !tried.costs.empty(); });
    std::string line = model_line(*models[i]);
    if (was_measured) line.append("  ").append(choice.why);
    const std::string note = note_of(*models[i]);
    if (!note.empty()) line.append("; ").append(note);
    std::printf("  %s\n", line.c_str());
  }
  if (models.size() > kBannerModels) {
    std::printf("  and %zu more\n", models.size() - kBannerModels);
  }
}

}  // namespace

std::string model_line(const lumen::models::Model& model) {
  const auto& metadata = model.metadata();
  std::string line = metadata.name + "/" + metadata.version;
  if (model.state() != ModelState::kReady) return line + "  UNAVAILABLE, see the log";
  line.append("  ").append(model.choice().backend);
  return line + "  " + tensor_list(metadata.inputs) + " -> " + tensor_list(metadata.outputs);
}

std::string instances_text(const lumen::engine::Engine::Instances& instances) {
  if (instances.count == 0) return {};
  std::string text = std::to_string(instances.count) + " instance";
  if (instances.count != 1) text += "s";
  if (instances.bytes != 0) text += " of " + megabytes_text(instances.bytes);
  return text;
}

std::string overcommit_warning(const lumen::server::ServerOptions& options,
                               const lumen::CpuBudget& budget) {
  const Runners runners = runners_of(options, budget);
  if (runners.count <= budget.count) return {};
  return runners.text + " on " + budget.text() +
         ": they share the CPUs in turns, and each request waits for its turn; wanted " +
         std::to_string(budget.count) + " at most";
}

std::string exposure_warning(std::string_view flag, std::string_view tcp_address,
                             const lumen::server::ServerOptions& options) {
  const auto address = lumen::net::parse_tcp_address(tcp_address);
  if (!address.ok() || lumen::net::is_loopback(*address)) return {};
  const bool has_keys = !options.api_key_file.empty();
  if (!options.tls_client_ca.empty() || (has_keys && !options.tls_cert.empty())) return {};
  std::string text = "listening on ";
  text.append(tcp_address).append(", beyond this machine, and there is no ");
  if (has_keys) {
    return text.append(
        "TLS: the network can read the keys of clients (wanted: --tls-cert, or a "
        "proxy with TLS)");
  }
  return text.append("authentication: any host that reaches the port may use every model (wanted: ")
      .append(flag)
      .append(
          "127.0.0.1:PORT, --api-key-file or --tls-client-ca, or a firewall or a proxy with "
          "authentication)");
}

void print_banner(const lumen::server::ServerOptions& options, const lumen::CpuBudget& budget,
                  std::string_view pinning, const lumen::models::ModelRepository& repository,
                  const ModelNote& note_of, std::string_view http_address,
                  std::string_view grpc_address, std::string_view unix_path,
                  std::string_view bus_path, std::string_view counters_path) {
  const auto& models = repository.models();
  const auto ready = static_cast<size_t>(std::ranges::count_if(
      models, [](const auto& model) { return model->state() == ModelState::kReady; }));
  std::printf("lumen %s, %s\n", LUMEN_VERSION, repository.backends().description().c_str());
  std::printf("engine %s\n", engine_text(options).c_str());
  const Runners runners = runners_of(options, budget);
  std::printf("cpus %s: %s, %.*s%s\n", budget.text().c_str(), runners.text.c_str(),
              static_cast<int>(pinning.size()), pinning.data(),
              express_text(options, runners.count).c_str());
  std::printf("csv %s\n", options.telemetry_csv_path.empty()
                              ? "off"
                              : absolute_text(options.telemetry_csv_path).c_str());
  if (!options.otlp_endpoint.empty()) std::printf("spans %s\n", options.otlp_endpoint.c_str());
  std::printf("counters %s\n",
              counters_path.empty() ? "off" : absolute_text(counters_path).c_str());
  std::printf("models %s: %zu ready, %zu unavailable\n",
              absolute_text(options.model_repository).c_str(), ready, models.size() - ready);
  print_models(repository, note_of);
  std::string line = "lumen: ready";
  if (!http_address.empty()) line.append(" http=").append(http_address);
  if (!grpc_address.empty()) line.append(" grpc=").append(grpc_address);
  if (!unix_path.empty()) line.append(" unix=").append(absolute_text(unix_path));
  if (!bus_path.empty()) line.append(" bus=").append(absolute_text(bus_path));
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);  // the process that waits for the last line reads a pipe
}
