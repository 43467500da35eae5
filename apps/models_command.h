// `lumen models`: loads the models of a repository as a server would, and describes each and the
// backend that serves it. `lumen check`: the same for faults alone, or a server's configuration.
// Main thread. Errors: exit status 1 when a model is unavailable, the repository can't be read or
// the configuration is wrong, 2 for arguments.
#pragma once

#include <CLI/CLI.hpp>

// The callback leaves the status in `exit_status`, which outlives `app`.
void add_models_command(CLI::App& app, int& exit_status);
void add_check_command(CLI::App& app, int& exit_status);
