// See the header.
#include "completion_command.h"

#include <lumen/server/settings.h>

#include "python_command.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

namespace {

struct Completion {
  std::string word;
  std::string help;  // one line; empty: none
};

struct Shell {
  std::string_view name;
  const char* script;
};

// A word that is not lumen's own is completed as a file name.
constexpr std::array kShells = {
    Shell{"bash", R"SHELL(# For bash: source <(lumen completion bash)
_lumen() {
  local IFS=$'\n' words=("${COMP_WORDS[@]:1:COMP_CWORD}")
  COMPREPLY=($("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null | cut -f1))
  [[ ${#COMPREPLY[@]} -gt 0 ]] || compopt -o default 2>/dev/null
}
complete -F _lumen lumen
)SHELL"},
    Shell{"zsh", R"SHELL(#compdef lumen
# For zsh: source <(lumen completion zsh)
_lumen() {
  local -a found described
  found=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -z "${found[1]}" ]]; then
    _files
    return
  fi
  described=("${(@)found//:/\\:}")
  described=("${(@)described/$'\t'/:}")
  _describe lumen described
}
if [[ "$funcstack[1]" = _lumen ]]; then _lumen "$@"; else compdef _lumen lumen; fi
)SHELL"},
    Shell{"fish", R"SHELL(# For fish: lumen completion fish | source
function __lumen_complete
  set -l words (commandline -opc) (commandline -ct)
  $words[1] __complete $words[2..-1] 2>/dev/null
end
complete -c lumen -f -a '(__lumen_complete)'
complete -c lumen -n 'test -z "$(__lumen_complete)"' -F
)SHELL"},
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

void add(std::vector<Completion>& found, std::string_view partial, std::string word,
         const std::string& help) {
  if (word.starts_with(partial)) found.push_back({std::move(word), first_line(help)});
}

const CLI::App* command_named(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

void add_commands(std::vector<Completion>& found, const CLI::App& app, std::string_view partial) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    add(found, partial, command->get_name(), command->get_description());
  }
}

void add_flags(std::vector<Completion>& found, const CLI::App& command, std::string_view partial) {
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      add(found, partial, "--" + name, option->get_description());
    }
  }
  for (const std::string_view flag : flags_of_python_command(command.get_name())) {
    add(found, partial, std::string(flag), {});
  }
}

// Of a setting with words of its own.
void add_values(std::vector<Completion>& found, const std::string& flag, std::string_view partial) {
  for (const lumen::server::Setting& setting : lumen::server::settings()) {
    if (setting.flag() != flag) continue;
    for (const std::string_view word : setting.values.words) {
      add(found, partial, std::string(word), {});
    }
  }
}

int print_script(const std::string& shell) {
  const auto* const found = std::ranges::find(kShells, shell, &Shell::name);
  if (found == kShells.end()) {
    std::fprintf(stderr, "lumen completion: got '%s', wanted bash, zsh or fish\n", shell.c_str());
    return 2;
  }
  std::fputs(found->script, stdout);
  return 0;
}

std::vector<Completion> completions(const CLI::App& app, std::span<const std::string> words) {
  std::vector<Completion> found;
  const std::string partial = words.empty() ? std::string() : words.back();
  const CLI::App* command = &app;
  for (const std::string& word : words.first(words.empty() ? 0 : words.size() - 1)) {
    const CLI::App* const inner = command_named(*command, word);
    if (inner == nullptr) break;
    command = inner;
  }
  const bool is_flag = partial.starts_with("-");
  if (is_flag) add_flags(found, *command, partial);
  if (!is_flag && words.size() > 1) {
    add_values(found, words[words.size() - 2], partial);
    if (command->get_name() == "completion") {
      for (const Shell& shell : kShells) add(found, partial, std::string(shell.name), {});
    }
  }
  // Commands stand before all other words.
  const bool is_first = words.size() < 2 || words[words.size() - 2] == command->get_name();
  if (!is_flag && is_first) add_commands(found, *command, partial);
  std::ranges::sort(found, {}, &Completion::word);
  return found;
}

}  // namespace

int print_completions(const CLI::App& app, std::span<const std::string> words) {
  for (const Completion& one : completions(app, words)) {
    std::printf("%s%s%s\n", one.word.c_str(), one.help.empty() ? "" : "\t", one.help.c_str());
  }
  return 0;
}

void add_completion_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand(
      "completion", "a script by which a shell completes lumen's commands and flags");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required();
  command->callback([shell, &exit_status] { exit_status = print_script(*shell); });
}
