// See the header.
#include "models_command.h"

#include <lumen/backends/built_in.h>
#include <lumen/backends/python.h>
#include <lumen/base/clock.h>
#include <lumen/models/execution_provider.h>
#include <lumen/models/load_progress.h>
#include <lumen/models/model_repository.h>
#include <lumen/server/settings.h>
#include <lumen/telemetry/counters.h>

#include "python_command.h"
#include "serve_banner.h"
#include "trial_process.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace {

using lumen::models::BackendChoice;
using lumen::models::Model;
using lumen::models::ModelState;

struct ModelsArguments {
  std::filesystem::path repository = "models";
  std::string backend{lumen::models::kAutoBackend};
  std::string execution_providers{"[]"};
  std::string python{"off"};
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
  const BackendChoice& choice = model.choice();
  if (model.state() != ModelState::kReady) {
    std::printf("    %s\n", model.reason().c_str());
  } else {
    std::printf("    %s%s: %s\n", choice.backend.c_str(),
                choice.is_remembered ? " (measured at an earlier start)" : "", choice.why.c_str());
  }
  if (!explain) return;
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

// Loads the repository as a server would, and calls `show` with its models. The exit status.
int with_models(const char* command, const ModelsArguments& arguments,
                const std::function<void(const std::vector<std::shared_ptr<Model>>&)>& show) {
  const auto counters = std::make_unique<lumen::telemetry::Counters>();
  lumen::models::LoadProgress progress(lumen::now_ns(), [](std::string_view text) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
  });
  const auto providers = lumen::models::parse_execution_providers(arguments.execution_providers);
  if (!providers.ok()) {
    std::fprintf(stderr, "lumen %s: --execution-providers: %s\n", command,
                 providers.status().c_message());
    return 2;
  }
  auto backends = lumen::backends::with_devices(*providers);
  backends.push_back(lumen::backends::make_python(python_for_models(arguments.python)));
  TrialProcesses trials({.execution_providers = arguments.execution_providers});
  const auto repository = lumen::models::ModelRepository::open(
      arguments.repository, std::move(backends), *counters,
      {.backend = arguments.backend,
       .cache = lumen::models::default_choices_file(),
       .trials = &trials},
      [&progress](const Model& model, size_t number, size_t count) {
        progress.on_loaded(model, number, count, lumen::now_ns());
      });
  if (!repository.ok()) {
    std::fprintf(stderr, "lumen %s: %s\n", command, repository.status().c_message());
    return 1;
  }
  const std::vector<std::shared_ptr<Model>> models = (*repository)->models();
  show(models);
  const bool all_ready = std::ranges::all_of(
      models, [](const auto& model) { return model->state() == ModelState::kReady; });
  return all_ready ? 0 : 1;
}

int run_models(const ModelsArguments& arguments) {
  return with_models("models", arguments, [&](const auto& models) {
    for (const auto& model : models) print_model(*model, arguments.explain);
  });
}

// The configuration of a server, as `lumen serve --config` takes it.
int check_configuration(const std::filesystem::path& file) {
  const lumen::server::ServerOptions defaults;
  const auto options = lumen::server::load_config(file, defaults);
  const lumen::Status status =
      options.ok() ? lumen::server::validate_options(*options) : options.status();
  if (status.ok()) {
    std::printf("ok  %s\n", file.c_str());
    return 0;
  }
  std::printf("bad %s\n    %s\n", file.c_str(), status.c_message());
  return 1;
}

int run_check(const ModelsArguments& arguments) {
  std::error_code none;
  if (!std::filesystem::is_directory(arguments.repository, none)) {
    return check_configuration(arguments.repository);
  }
  return with_models("check", arguments, [](const auto& models) {
    size_t bad = 0;
    for (const auto& model : models) {
      const bool is_ready = model->state() == ModelState::kReady;
      bad += is_ready ? 0 : 1;
      std::printf("%s %s/%s%s%s\n", is_ready ? "ok " : "bad", model->metadata().name.c_str(),
                  model->metadata().version.c_str(), is_ready ? "" : "\n    ",
                  is_ready ? "" : model->reason().c_str());
    }
    std::printf("%zu versions, %zu of them can't be served\n", models.size(), bad);
  });
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
  command->add_option("--python", arguments->python,
                      "as lumen serve takes it: runs model.py by that interpreter; default: off");
  command->add_flag(
      "--explain", arguments->explain,
      "with the measurements of each backend, and why one can't; also what is not packed, and why");
  command->callback([arguments, &exit_status] { exit_status = run_models(*arguments); });
}

void add_check_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand(
      "check", "look at a repository or a configuration without serving it, and say the fixes");
  auto arguments = std::make_shared<ModelsArguments>();
  command
      ->add_option(
          "PATH", arguments->repository,
          "a model repository, whose models are loaded, or a file for lumen serve --config")
      ->required();
  command->add_option("--backend", arguments->backend,
                      "of models whose config.json names none; default: auto");
  command->add_option("--execution-providers", arguments->execution_providers,
                      "as lumen serve takes it: ways to devices, a list in JSON");
  command->add_option("--python", arguments->python,
                      "as lumen serve takes it: runs model.py by that interpreter; default: off");
  command->callback([arguments, &exit_status] { exit_status = run_check(*arguments); });
}
