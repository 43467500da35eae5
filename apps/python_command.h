// `lumen top`, `slow`, `trace`, `perf`, `dashboard`: commands that are Python. `lumen` becomes
// `PYTHON -m lumen_engine COMMAND ...`: same process id, same signals, same terminal.
// Threads: main, before any other exists. Memory: control plane.
// Errors: a line on stderr that names the missing package and how to get it, and exit status 1.
#pragma once

#include <lumen/backends/python.h>

#include <CLI/CLI.hpp>

#include <optional>
#include <span>
#include <string>
#include <string_view>

// If argv[1] is one of them, runs it and returns the exit status, but only where that fails.
// Otherwise nothing. Before the command line is parsed: their arguments, --help too, are theirs.
[[nodiscard]] std::optional<int> run_python_command(char** argv);

// The Python of models in Python; `setting`: "off", "on" (the Python of these commands) or an
// interpreter.
[[nodiscard]] lumen::backends::PythonOptions python_for_models(const std::string& setting);

// The long flags of one of them, for completion; empty: it is none.
[[nodiscard]] std::span<const std::string_view> flags_of_python_command(std::string_view name);

// A line for each in `lumen --help`.
void list_python_commands(CLI::App& app);
