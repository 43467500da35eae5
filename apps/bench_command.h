// `lumen bench URL`: load on an inference server, closed or open loop; and `lumen bench NAME`,
// which measures one of the libraries. Main thread, starts load threads. Errors: exit status 2 for
// arguments, 1 when there is no server, no such model or no good reply; a line on stderr.
#pragma once

#include <CLI/CLI.hpp>

// The callback leaves the status in `exit_status`, which outlives `app`.
void add_bench_command(CLI::App& app, int& exit_status);
