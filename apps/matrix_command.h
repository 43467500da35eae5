// `lumen matrix`: every queue type with every allocator, each in a server of its own, and the
// table. Main thread, starts servers as children and load threads. Errors: exit status 2 for
// arguments, 1 when a row failed; the row says why.
#pragma once

#include <CLI/CLI.hpp>

// The callback leaves the status in `exit_status`, which outlives `app`.
void add_matrix_command(CLI::App& app, int& exit_status);
