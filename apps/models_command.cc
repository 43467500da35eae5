// See the header.
#include "models_command.h"

#include <lumen/backends/built_in.h>
#include <lumen/base/clock.h>
#include <lumen/models/execution_provider.h>
#include <lumen/models/load_progress.h>
#include <lumen/models/model_repository.h>
#include <lumen/telemetry/counters.h>

#include "serve_banner.h"
#include "trial_process.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace {

using lumen::models::BackendChoice;
using lumen::models::Model;
using lumen::models::ModelState;

struct ModelsArguments {
  std::filesystem::path repository = "models";
  std::string backend{lumen::models::kAutoBackend};
  std::string execution_providers{"[]"};
  bool explain = false;
};

void print_tried(const lumen::models::TriedBackend& tried) {
  std::printf("    %-12s", tried.name.c_str());
  if (!tried.problem.empty()) std::printf(" can't: %s", tried.problem.c_str());
  for (const lumen::models::SizeCost& cost : tried.costs) {
    std::printf(" %u row%s %.1f us;", cost.rows, cost.rows == 1 ? "" : "s",
                static_cast<double>(cost.ns) / 1e3);
  }
  std::printf("%s\n", tried.problem.empty() && tried.costs.empty() ? " not measured" : "");
}

void print_model(const Model& model, bool explain) {
  std::printf("%s\n", model_line(model).c_str());
  if (!explain) return;
  const BackendChoice& choice = model.choice();
  if (model.state() != ModelState::kReady) {
    std::printf("    %s\n", model.reason().c_str());
  } else {
    std::printf("    %s%s: %s\n", choice.backend.c_str(),
                choice.is_remembered ? " (measured at an earlier start)" : "", choice.why.c_str());
  }
  if (!model.precision_why().empty()) {
    std::printf("    %s: %s\n", std::string(model.precision()).c_str(),
                model.precision_why().c_str());
  }
  for (const std::string& one : choice.operators_not_known) {
    std::printf("    not known to compute as ONNX defines it: %s\n", one.c_str());
  }
  if (!model.why_not_packed().empty()) {
    std::printf("    not packed: %s\n", model.why_not_packed().c_str());
  }
  for (const lumen::models::TriedBackend& tried : choice.tried) print_tried(tried);
}

int run_models(const ModelsArguments& arguments) {
  const auto counters = std::make_unique<lumen::telemetry::Counters>();
  lumen::models::LoadProgress progress(lumen::now_ns(), [](std::string_view text) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
  });
  const auto providers = lumen::models::parse_execution_providers(arguments.execution_providers);
  if (!providers.ok()) {
    std::fprintf(stderr, "lumen models: --execution-providers: %s\n",
                 providers.status().message().data());
    return 2;
  }
  TrialProcesses trials({.execution_providers = arguments.execution_providers});
  const auto repository = lumen::models::ModelRepository::open(
      arguments.repository, lumen::backends::with_devices(*providers), *counters,
      {.backend = arguments.backend,
       .cache = lumen::models::default_choices_file(),
       .trials = &trials},
      [&progress](const Model& model, size_t number, size_t count) {
        progress.on_loaded(model, number, count, lumen::now_ns());
      });
  if (!repository.ok()) {
    std::fprintf(stderr, "lumen models: %s\n", repository.status().message().data());
    return 1;
  }
  bool all_ready = true;
  for (const auto& model : (*repository)->models()) {
    print_model(*model, arguments.explain);
    all_ready = all_ready && model->state() == ModelState::kReady;
  }
  return all_ready ? 0 : 1;
}

}  // namespace

void add_models_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand(
      "models", "load the models of a repository and say which backend serves each");
  auto arguments = std::make_shared<ModelsArguments>();
  command->add_option("--model-repository", arguments->repository, "default: models");
  command->add_option("--backend", arguments->backend,
                      "of models whose config.json names none; default: auto");
  command->add_option("--execution-providers", arguments->execution_providers,
                      "as lumen serve takes it: ways to devices, a list in JSON");
  command->add_flag("--explain", arguments->explain,
                    "with the measurements of each backend, and why one can't");
  command->callback([arguments, &exit_status] { exit_status = run_models(*arguments); });
}
