// Parses the command line and hands over to one file per subcommand. Main thread.
#include "lumen_main.h"

#include "bench_shared_buffer.h"
#include "serve_command.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace {

// `lumen bench NAME ...`: each bench reads its own arguments, --help among them.
void add_bench_command(CLI::App& app, int& exit_status) {
  CLI::App* bench = app.add_subcommand("bench", "measure one of the libraries");
  bench->require_subcommand(1);
  CLI::App* shared_buffer =
      bench->add_subcommand("shared-buffer", "many threads write records into one buffer");
  shared_buffer->prefix_command();
  shared_buffer->set_help_flag();
  shared_buffer->callback([shared_buffer, &exit_status] {
    std::vector<std::string> words = shared_buffer->remaining();
    words.insert(words.begin(), "shared-buffer");
    std::vector<char*> argv(words.size() + 1, nullptr);
    std::ranges::transform(words, argv.begin(), [](std::string& word) { return word.data(); });
    exit_status = run_bench_shared_buffer(static_cast<int>(words.size()), argv.data());
  });
}

}  // namespace

int lumen_main(int argc, char** argv) {
  CLI::App app("Lumen: a low-latency inference server for one machine", "lumen");
  app.set_version_flag("--version", "lumen " LUMEN_VERSION);
  app.require_subcommand(1);
  int exit_status = 0;
  add_serve_command(app, exit_status);
  add_bench_command(app, exit_status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // --help and --version come as "errors" with code 0
  }
  return exit_status;
}
