// `lumen doctor`: the settings of this machine that slow a low-latency server down, and how to
// change them. Threads: main, and two while it measures. Memory: control plane. Errors: exit status
// 1 with --strict and a warning, 2 for arguments; else 0, and a value that can't be read is a line
// that says so.
#pragma once

#include <CLI/CLI.hpp>

// The callback leaves the status in `exit_status`, which outlives `app`.
void add_doctor_command(CLI::App& app, int& exit_status);
