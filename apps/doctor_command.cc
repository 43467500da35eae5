// The body of `lumen doctor`. See the header.
#include "doctor_command.h"

#include "doctor/checks.h"
#include "doctor/report.h"

#include <lumen/server/options.h>

#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace doctor = lumen::doctor;

// The descriptors that a server has open once its models are loaded, beside its connections:
// backends, log, CSV. Some 20 of OpenVINO's were seen.
constexpr uint64_t kOpenAtStart = 64;

struct DoctorArguments {
  bool json = false;
  bool strict = false;
};

// https://no-color.org: set and not empty.
bool is_colour_wanted() {
  const char* no_colour = std::getenv("NO_COLOR");
  return ::isatty(STDOUT_FILENO) == 1 && (no_colour == nullptr || no_colour[0] == '\0');
}

int run_doctor(const DoctorArguments& arguments) {
  const lumen::server::ServerOptions defaults;
  const doctor::Machine machine =
      doctor::this_machine(lumen::server::most_descriptors(defaults, kOpenAtStart));
  std::vector<doctor::Line> lines;
  for (const doctor::Check& check : doctor::checks()) {
    lines.push_back({std::string(check.name), check.run(machine)});
  }
  for (doctor::Line& line : doctor::check_servers(machine)) lines.push_back(std::move(line));
  const std::string out = arguments.json ? doctor::to_json(lines).dump(2) + "\n"
                                         : doctor::to_text(lines, is_colour_wanted());
  if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size() || std::fflush(stdout) != 0) {
    std::perror("lumen doctor: writing to stdout");
    return 1;
  }
  const bool has_warning = doctor::count_of(lines, doctor::State::kWarn) != 0;
  return arguments.strict && has_warning ? 1 : 0;
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand(
      "doctor", "settings of this machine that hold a server back, and how to change them");
  auto arguments = std::make_shared<DoctorArguments>();
  command->add_flag("--json", arguments->json, "an array of {name, value, unit, status, mend}");
  command->add_flag("--strict", arguments->strict, "exit status 1 if there is a warning");
  command->callback([arguments, &exit_status] { exit_status = run_doctor(*arguments); });
}
