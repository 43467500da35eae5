// Parses the command line and hands over to one file per subcommand. Main thread.
#include "lumen_main.h"

#include <lumen/backends/built_in.h>
#include <lumen/models/backends.h>

#include "bench_command.h"
#include "bus_command.h"
#include "completion_command.h"
#include "doctor_command.h"
#include "matrix_command.h"
#include "models_command.h"
#include "python_command.h"
#include "serve_command.h"
#include "trial_process.h"

#include <lumen/base/nearest_name.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

// The flag that a mistyped one was meant to be. CLI11 says only that it does not know it.
std::string nearest_flag(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const std::string& given : command.remaining()) {
    const std::string flag = given.substr(0, given.find('='));
    if (!flag.starts_with("--")) continue;
    const std::vector<std::string_view> valid(names.begin(), names.end());
    const std::string_view nearest = lumen::nearest_name(flag, valid);
    if (!nearest.empty()) return flag + ": the nearest flag is " + std::string(nearest) + "\n";
  }
  return {};
}

}  // namespace

int lumen_main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == kTryModelsCommand) {
    return run_try_models(argc > 2 ? argv[2] : "[]");
  }
  if (const std::optional<int> status = run_python_command(argv)) return *status;
  CLI::App app("Lumen: a low-latency inference server for one machine", "lumen");
  app.set_version_flag("--version", [] {
    const lumen::models::Backends backends(lumen::backends::with_devices({}));
    return "lumen " LUMEN_VERSION ", " + backends.description();
  });
  app.require_subcommand(1);
  int exit_status = 0;
  add_serve_command(app, exit_status);
  add_bench_command(app, exit_status);
  add_matrix_command(app, exit_status);
  add_models_command(app, exit_status);
  add_check_command(app, exit_status);
  add_bus_command(app, exit_status);
  add_doctor_command(app, exit_status);
  add_completion_command(app, exit_status);
  list_python_commands(app);
  if (argc > 1 && std::string_view(argv[1]) == kCompleteCommand) {
    return print_completions(app, std::vector<std::string>(argv + 2, argv + argc));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError& error) {
    for (const CLI::App* command : app.get_subcommands()) std::cerr << nearest_flag(*command);
    (void)app.exit(error);
    return 2;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // --help and --version come as "errors" with code 0
  }
  return exit_status;
}
