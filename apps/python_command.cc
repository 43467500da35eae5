// See the header. Which Python: $LUMEN_PYTHON; the python3 beside the path by which lumen was
// called (a virtual environment's); that of the source tree's .venv; python3 of PATH.
#include "python_command.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct PythonCommand {
  const char* name;
  const char* help;
  std::array<std::string_view, 11> flags;  // empty ones at the end are none
};

// The same names as in python/lumen_engine/commands.py.
constexpr std::array kCommands = {
    PythonCommand{
        "top", "a running server, live", {"--help", "--hz", "--once", "--json", "--interval"}},
    PythonCommand{"slow",
                  "the slowest requests of a server, with their stages",
                  {"--help", "--model", "--count", "--json"}},
    PythonCommand{
        "trace", "the last requests of a server, as a file for Perfetto", {"--help", "--model"}},
    PythonCommand{"perf",
                  "profile a server under load by the hardware's counters",
                  {"--help", "--model", "--model-repository", "--clients", "--warm-up", "--json",
                   "--flame", "--callgrind", "--no-callgrind", "--server-arg"}},
    PythonCommand{"ps", "the models of a running server", {"--help", "--unix", "--json"}},
    PythonCommand{
        "load", "load models of a running server, or load them anew", {"--help", "--unix"}},
    PythonCommand{"unload", "unload models of a running server", {"--help", "--unix"}},
    PythonCommand{"engine",
                  "the settings of a running server's engine, shown or changed",
                  {"--help", "--unix", "--json"}},
    PythonCommand{"record",
                  "a sample of the rows that clients send for a model",
                  {"--help", "--version", "--rows", "--seconds", "--output", "--unix"}},
    PythonCommand{"quantize",
                  "an INT8 version of a model, where it pays",
                  {"--help", "--data", "--metric", "--gate", "--dry-run", "--json"}},
    PythonCommand{
        "demo", "reads a photographed receipt by two models, to look at", {"--help", "--keep"}},
    PythonCommand{"dashboard",
                  "figures of CSVs, benches and a live server, in the browser",
                  {"--help", "--port", "--address", "--base-url-path", "--proxy-host"}},
};

// Empty in an installed lumen.
constexpr std::string_view kSourceTree = LUMEN_SOURCE_TREE;

// The meaning of the probe's exit status.
constexpr int kNoPackage = 3;
constexpr int kTooOld = 4;
constexpr const char* kProbe =
    "import sys\n"
    "if sys.version_info < (3, 11): sys.exit(4)\n"
    "import importlib.util\n"
    "sys.exit(0 if importlib.util.find_spec('lumen_engine') else 3)\n";

bool is_executable(const fs::path& path) { return access(path.c_str(), X_OK) == 0; }

// The folder of the path by which we were called, links not followed: .venv/bin/lumen is one.
fs::path folder_of_call(const char* called) {
  const std::string_view name = called == nullptr ? "" : called;
  if (name.find('/') != std::string_view::npos) return fs::path(name).parent_path();
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    const fs::path folder(rest.substr(0, end));
    if (!name.empty() && !folder.empty() && is_executable(folder / name)) return folder;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return {};
}

std::string find_python(const char* called) {
  if (const char* named = std::getenv("LUMEN_PYTHON"); named != nullptr && *named != '\0') {
    return named;
  }
  if (const fs::path folder = folder_of_call(called); !folder.empty()) {
    if (is_executable(folder / "python3")) return folder / "python3";
  }
  if (!kSourceTree.empty()) {
    const fs::path own = fs::path(kSourceTree) / ".venv" / "bin" / "python3";
    if (is_executable(own)) return own;
  }
  return "python3";
}

// The source tree's package; empty: none, or installed.
std::string package_folder() {
  if (kSourceTree.empty()) return {};
  const fs::path package = fs::path(kSourceTree) / "python";
  std::error_code error;
  return fs::exists(package / "lumen_engine" / "__main__.py", error) ? package.string() : "";
}

// Our tree's package, and our own path, for the programs that the command runs.
void set_environment() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (!error) setenv("LUMEN_BINARY", self.c_str(), 0);
  const std::string package = package_folder();
  if (package.empty()) return;
  const char* before = std::getenv("PYTHONPATH");
  const std::string rest = before == nullptr || *before == '\0' ? "" : ":" + std::string(before);
  setenv("PYTHONPATH", (package + rest).c_str(), 1);
}

// The exit status of the probe, or -1 with errno.
int probe(const std::string& python) {
  const std::array<const char*, 4> words = {python.c_str(), "-c", kProbe, nullptr};
  pid_t child = 0;
  errno = posix_spawnp(&child, python.c_str(), nullptr, nullptr,
                       const_cast<char* const*>(words.data()), environ);
  if (errno != 0) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int fail(const char* command, const std::string& reason) {
  std::fprintf(stderr, "lumen %s: %s\n", command, reason.c_str());
  return 1;
}

int become_python(const std::string& python, char** argv) {
  const char* command = argv[1];
  switch (const int status = probe(python); status) {
    case 0: break;
    case -1:
      return fail(command, "it is Python, and " + python +
                               " can't be run: " + std::strerror(errno) +
                               "; install python3, or name one by LUMEN_PYTHON");
    case kNoPackage:
      return fail(command, python + " has no package lumen_engine: pip install lumen-engine" +
                               "[tools] there, or name another Python by LUMEN_PYTHON");
    case kTooOld:
      return fail(command, python + " is older than 3.11: name another by LUMEN_PYTHON");
    default:
      return fail(command, python + " exited with status " + std::to_string(status) +
                               " where it should only have looked for lumen_engine");
  }
  std::vector<const char*> words = {python.c_str(), "-m", "lumen_engine"};
  for (char** word = argv + 1; *word != nullptr; ++word) words.push_back(*word);
  words.push_back(nullptr);
  execvp(python.c_str(), const_cast<char* const*>(words.data()));
  return fail(command, python + " can't be run: " + std::strerror(errno));
}

}  // namespace

std::optional<int> run_python_command(char** argv) {
  if (argv[0] == nullptr || argv[1] == nullptr) return std::nullopt;
  const bool is_ours = std::ranges::any_of(kCommands, [argv](const PythonCommand& each) {
    return std::strcmp(each.name, argv[1]) == 0;
  });
  if (!is_ours) return std::nullopt;
  const std::string python = find_python(argv[0]);
  set_environment();
  return become_python(python, argv);
}

lumen::backends::PythonOptions python_for_models(const std::string& setting) {
  if (setting == "off") return {};
  return {.interpreter = setting == "on" ? find_python(program_invocation_name) : setting,
          .package_folder = package_folder()};
}

std::span<const std::string_view> flags_of_python_command(std::string_view name) {
  const auto* const found = std::ranges::find(kCommands, name, &PythonCommand::name);
  if (found == kCommands.end()) return {};
  const auto* const end = std::ranges::find(found->flags, std::string_view());
  return {found->flags.begin(), end};
}

void list_python_commands(CLI::App& app) {
  for (const PythonCommand& each : kCommands) app.add_subcommand(each.name, each.help);
}
