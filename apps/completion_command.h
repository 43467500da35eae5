// `lumen completion SHELL`: a script by which bash, zsh or fish completes lumen's commands, flags
// and values. The script asks `lumen __complete WORDS`, so that it fits any version of lumen.
// Main thread. Errors: exit status 2 for an unknown shell.
#pragma once

#include <CLI/CLI.hpp>

#include <span>
#include <string>

// The first argument of a shell's question; the others are the words behind "lumen", of which the
// last is the one to complete, perhaps empty.
inline constexpr const char* kCompleteCommand = "__complete";

// A line for each word that fits, in their order: the word, a tab, its help. None: the shell may
// complete file names.
[[nodiscard]] int print_completions(const CLI::App& app, std::span<const std::string> words);

void add_completion_command(CLI::App& app, int& exit_status);
