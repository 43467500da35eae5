// Parses the command line and hands over to one file per subcommand. Main thread.
#include "lumen_main.h"

#include "bench_command.h"
#include "matrix_command.h"
#include "serve_command.h"

#include <CLI/CLI.hpp>

int lumen_main(int argc, char** argv) {
  CLI::App app("Lumen: a low-latency inference server for one machine", "lumen");
  app.set_version_flag("--version", "lumen " LUMEN_VERSION);
  app.require_subcommand(1);
  int exit_status = 0;
  add_serve_command(app, exit_status);
  add_bench_command(app, exit_status);
  add_matrix_command(app, exit_status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // --help and --version come as "errors" with code 0
  }
  return exit_status;
}
