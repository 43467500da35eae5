// `lumen bus top PATH`: the traffic of a bus, live.
// Threads: main. Memory: control plane. Errors: a line on stderr and exit status 1.
#pragma once

#include <CLI/CLI.hpp>

void add_bus_command(CLI::App& app, int& exit_status);
