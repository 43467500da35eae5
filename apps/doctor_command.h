// `lumen doctor`: what of this machine holds a low-latency server back, and how to change it.
// Threads: main, and two while it measures. Memory: control plane. Errors: exit status 1 with --strict and
// a warning, 2 for arguments; else 0, and what can't be read is a line that says so.
#pragma once

#include <CLI/CLI.hpp>

// The callback leaves the status in `exit_status`, which outlives `app`.
void add_doctor_command(CLI::App& app, int& exit_status);
