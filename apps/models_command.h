// `lumen models`: loads the models of a repository as a server would, and describes each and the
// backend that serves it. Main thread. Errors: exit status 1 when a model is unavailable or the
// repository can't be read, 2 for arguments.
#pragma once

#include <CLI/CLI.hpp>

// The callback leaves the status in `exit_status`, which outlives `app`.
void add_models_command(CLI::App& app, int& exit_status);
