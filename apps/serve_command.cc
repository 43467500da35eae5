// `lumen serve`: settings from file and flags, banner, signals, drain. Main thread; control plane.
#include "serve_command.h"

#include <lumen/engine/backend.h>
#include <lumen/serve/server.h>
#include <lumen/serve/settings.h>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

namespace {

using lumen::engine::ModelState;

// The banner has at most 12 lines, so longer lists of models are cut.
constexpr size_t kBannerModels = 7;

struct ServeArguments {
  std::string config_file;
  std::string log_level = "info";
  std::map<const lumen::serve::Setting*, std::string> flags;  // as given, in text
};

std::string tensor_list(const std::vector<lumen::engine::TensorSpec>& tensors) {
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

void print_banner(const lumen::serve::ServerOptions& options,
                  const lumen::engine::ModelRepository& repository,
                  const std::string& http_address) {
  const auto& models = repository.models();
  size_t ready = 0;
  for (const auto& model : models) ready += model->state() == ModelState::kReady ? 1 : 0;
  std::printf("lumen %s, %s, %u worker%s, queue mpmc of %zu\n", LUMEN_VERSION,
              repository.backend().description().c_str(), options.engine.thread_count,
              options.engine.thread_count == 1 ? "" : "s", options.engine.queue_capacity);
  std::printf("models %s: %zu ready, %zu unavailable\n",
              std::filesystem::absolute(options.model_repository).lexically_normal().c_str(), ready,
              models.size() - ready);
  for (size_t i = 0; i < models.size() && i < kBannerModels; ++i) {
    const auto& metadata = models[i]->metadata();
    if (models[i]->state() == ModelState::kReady) {
      std::printf("  %s/%s  %s -> %s\n", metadata.name.c_str(), metadata.version.c_str(),
                  tensor_list(metadata.inputs).c_str(), tensor_list(metadata.outputs).c_str());
    } else {
      std::printf("  %s/%s  UNAVAILABLE, see the log\n", metadata.name.c_str(),
                  metadata.version.c_str());
    }
  }
  if (models.size() > kBannerModels) {
    std::printf("  and %zu more\n", models.size() - kBannerModels);
  }
  std::printf("lumen: ready http=%s\n", http_address.c_str());
  std::fflush(stdout);  // whoever waits for the last line reads a pipe
}

int fail(const lumen::Status& status) {
  spdlog::error("{}", status.message());
  return 1;
}

lumen::Result<lumen::serve::ServerOptions> gather_options(const ServeArguments& arguments) {
  lumen::serve::ServerOptions options;
  if (!arguments.config_file.empty()) {
    auto loaded = lumen::serve::load_config(arguments.config_file, options);
    if (!loaded.ok()) return loaded.status();
    options = *loaded;
  }
  for (const auto& [setting, value] : arguments.flags) {
    LUMEN_RETURN_IF_ERROR(lumen::serve::apply_setting(*setting, options, value));
  }
  return options;
}

int run_serve(const ServeArguments& arguments) {
  auto logger = spdlog::stderr_logger_mt("lumen");
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  logger->set_level(spdlog::level::from_str(arguments.log_level));
  spdlog::set_default_logger(logger);

  auto options = gather_options(arguments);
  if (!options.ok()) return fail(options.status());

  // Blocked before any thread exists, so that all inherit the mask and only sigwait() sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  auto server = lumen::serve::Server::start(*options, lumen::engine::make_openvino_backend());
  if (!server.ok()) return fail(server.status());
  for (const auto& model : (*server)->models().models()) {
    if (model->state() == ModelState::kUnavailable) {
      spdlog::warn("model {}/{} is unavailable: {}", model->metadata().name,
                   model->metadata().version, model->reason());
    }
  }
  print_banner(*options, (*server)->models(), (*server)->http_address());

  int signal = 0;
  sigwait(&signals, &signal);
  spdlog::info("{}: draining; a second signal ends at once", strsignal(signal));
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);  // both have their default action
  (*server)->drain();
  const auto& counters = (*server)->counters().server;
  spdlog::info("drained: {} requests, {} answered well, {} refused, {} failed",
               counters.requests.get(), counters.responses_2xx.get(), counters.responses_4xx.get(),
               counters.responses_5xx.get());
  return 0;
}

}  // namespace

void add_serve_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand("serve", "serve the models of a repository over HTTP");
  auto arguments = std::make_shared<ServeArguments>();
  command->add_option("--config", arguments->config_file, "config.json; flags beat it")
      ->take_last();
  command->add_option("--log-level", arguments->log_level, "trace, debug, info, warn, error, off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}))
      ->take_last();
  for (const lumen::serve::Setting& setting : lumen::serve::settings()) {
    command
        ->add_option_function<std::string>(
            lumen::serve::flag_name(setting),
            [arguments, &setting](const std::string& value) { arguments->flags[&setting] = value; },
            std::string(setting.help))
        ->take_last();
  }
  command->callback([arguments, &exit_status] { exit_status = run_serve(*arguments); });
}
