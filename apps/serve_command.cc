// `lumen serve`: settings from file and flags, signals (SIGHUP reads the file again), drain. Main
// thread; control plane.
#include "serve_command.h"

#include "python_command.h"
#include "serve_banner.h"
#include "serve_log.h"
#include "service_manager.h"
#include "stop_while_loading.h"
#include "trial_process.h"

#include <lumen/backends/built_in.h>
#include <lumen/backends/python.h>
#include <lumen/base/core_distance.h>
#include <lumen/base/cpu.h>
#include <lumen/models/backend.h>
#include <lumen/models/execution_provider.h>
#include <lumen/server/server.h>
#include <lumen/server/settings.h>
#include <lumen/telemetry/crash_report.h>

#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace {

using lumen::Result;
using lumen::Status;
using lumen::models::ModelState;
using lumen::server::Server;
using lumen::server::ServerOptions;
using lumen::server::Setting;
using lumen::server::SettingChange;

// Throttling is looked at this often: two small files, 0.1 ms of CPU.
constexpr timespec kThrottlePeriod = {.tv_sec = 10, .tv_nsec = 0};

struct ServeArguments {
  std::string config_file;
  std::map<const Setting*, std::string> flags;  // as given, in text
};

int fail(const Status& status) {
  spdlog::error("{}", status.message());
  return 1;
}

// Before the file is read, so that its errors are told in the wanted form.
void configure_log_by_flags(const ServeArguments& arguments) {
  ServerOptions options;
  for (const auto& [setting, value] : arguments.flags) {
    // A wrong one is reported when all of them are gathered.
    if (setting->key.starts_with("log_")) (void)setting->set(options, value);
  }
  configure_log(options.log_level, options.log_format);
}

Result<ServerOptions> gather_options(const ServeArguments& arguments) {
  ServerOptions options;
  if (!arguments.config_file.empty()) {
    auto loaded = lumen::server::load_config(arguments.config_file, options);
    if (!loaded.ok()) return loaded.status();
    options = *loaded;
  }
  for (const auto& [setting, value] : arguments.flags) {
    LUMEN_RETURN_IF_ERROR(setting->set(options, value).at(setting->flag()));
  }
  LUMEN_RETURN_IF_ERROR(lumen::server::validate_options(options));
  return options;
}

// Tells when the cgroup's quota has held the process back since it last looked.
class ThrottleWatch {
 public:
  [[nodiscard]] bool is_possible() const noexcept { return seen_us_.has_value(); }
  void look() {
    const std::optional<uint64_t> now_us = lumen::cgroup_throttled_us();
    if (seen_us_ && now_us && *now_us > *seen_us_) {
      spdlog::warn(
          "the cgroup's CPU quota held this process back: {} ms more in sum; latencies are not the "
          "server's own (wanted: a larger quota, or fewer threads)",
          (*now_us - *seen_us_ + 999) / 1000);
    }
    seen_us_ = now_us;
  }

 private:
  std::optional<uint64_t> seen_us_ = lumen::cgroup_throttled_us();
};

void warn_of_overcommit(const ServerOptions& options) {
  const std::string warning = overcommit_warning(options, lumen::cpu_budget());
  if (!warning.empty()) spdlog::warn("{}", warning);
}

std::string change_text(const Setting& setting, const ServerOptions& before,
                        const ServerOptions& after) {
  return fmt::format("{}.{} {} -> {}", setting.section, setting.key, setting.get(before),
                     setting.get(after));
}

// " (by pid 71, uid 1000)"; empty where the kernel sent it (the terminal is gone).
std::string who_sent(const siginfo_t& signal) {
  if (signal.si_code != SI_USER && signal.si_code != SI_QUEUE) return {};
  return fmt::format(" (by pid {}, uid {})", signal.si_pid, signal.si_uid);
}

void reopen_csv(Server& server, const ServerOptions& options, const std::string& by) {
  if (options.telemetry_csv_path.empty()) return;
  const Status status = server.reopen_trace_log();
  if (!status.ok()) return spdlog::error("SIGHUP: {}{}", status.message(), by);
  spdlog::info("SIGHUP: the CSV goes on in {}{}", options.telemetry_csv_path.string(), by);
}

void reload_keys(Server& server, const ServerOptions& options, const std::string& by) {
  if (options.api_key_file.empty()) return;
  const Status status = server.reload_api_keys();
  if (!status.ok()) return spdlog::error("SIGHUP: {}; the keys stay{}", status.message(), by);
  spdlog::info("SIGHUP: the keys of {} count now{}", options.api_key_file.string(), by);
}

void reload_certificates(Server& server, const ServerOptions& options, const std::string& by) {
  if (options.tls_cert.empty()) return;
  const Status status = server.reload_tls();
  if (!status.ok())
    return spdlog::error("SIGHUP: {}; the certificate stays{}", status.message(), by);
  spdlog::info("SIGHUP: new connections get the certificate of {}{}", options.tls_cert.string(),
               by);
}

// SIGHUP: the settings that can change during serving, all or nothing; the rest is named and left.
void reload(const ServeArguments& arguments, Server& server, ServerOptions& current,
            const std::string& by) {
  // POST /v2/lumen/engine may have changed it since.
  current.engine = server.engine_config();
  auto wanted = gather_options(arguments);
  if (!wanted.ok()) {
    spdlog::error("SIGHUP: {}; the configuration stays as it was{}", wanted.status().message(), by);
    return;
  }
  // The server says how many 0 stands for; so must this, or each reload would name a change.
  uint32_t& thread_count = wanted->engine.thread_count;
  if (thread_count == 0) thread_count = lumen::usable_cpu_count();
  ServerOptions next = current;
  std::string changes;
  for (const Setting* setting : lumen::server::changed_settings(current, *wanted)) {
    const std::string change = change_text(*setting, current, *wanted);
    if (setting->change == SettingChange::kRestart) {
      spdlog::warn("SIGHUP: {} needs a restart and is left{}", change, by);
    } else {
      (void)setting->set(next, setting->get(*wanted));  // it came out of set() already
      changes += (changes.empty() ? "" : ", ") + change;
    }
  }
  const Status status = server.reconfigure(next.engine);
  if (!status.ok()) {
    spdlog::error("SIGHUP: {}; the configuration stays as it was{}", status.message(), by);
    return;
  }
  current = next;
  configure_log(current.log_level, current.log_format);
  spdlog::info("SIGHUP: {}{}", changes.empty() ? "nothing changed" : changes, by);
  if (!changes.empty()) warn_of_overcommit(current);
}

// Blocked before any thread exists, so that all inherit the mask and only the main thread sees
// them.
sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  // SIGUSR1 and SIGUSR2 mean nothing, and would end the process.
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

// Until SIGTERM or SIGINT, which it returns.
int wait_for_the_end(const sigset_t& signals, const ServeArguments& arguments, Server& server,
                     ServerOptions& options, const ServiceManager& manager) {
  ThrottleWatch throttling;
  for (;;) {
    // Without a quota there is nothing to look at and no reason to wake.
    siginfo_t signal{};
    const int number = throttling.is_possible() ? sigtimedwait(&signals, &signal, &kThrottlePeriod)
                                                : sigwaitinfo(&signals, &signal);
    throttling.look();
    if (number == SIGHUP) {
      manager.reloading();
      reopen_csv(server, options, who_sent(signal));
      reload_keys(server, options, who_sent(signal));
      reload_certificates(server, options, who_sent(signal));
      reload(arguments, server, options, who_sent(signal));
      manager.ready();
    }
    if (number == SIGUSR1 || number == SIGUSR2) {
      spdlog::info("{}: ignored{}", strsignal(number), who_sent(signal));
    }
    if (number == SIGTERM || number == SIGINT) return number;
  }
}

void report(lumen::server::LogLevel level, std::string_view text) {
  spdlog::log(static_cast<spdlog::level::level_enum>(level), "{}", text);
}

// Each operator, since a client's wrong answer does not say which it came from.
void warn_of_operators(const lumen::models::Model& model) {
  for (const std::string& one : model.choice().operators_not_known) {
    spdlog::warn(
        "model {}/{} is served by {}, which is not known to compute as ONNX defines it: {}",
        model.metadata().name, model.metadata().version, model.choice().backend, one);
  }
}

std::string note_of_model(const lumen::models::Model& model, const Server& server) {
  if (model.state() != ModelState::kReady) return {};
  if (model.is_ensemble()) return model.choice().why;
  std::string note;
  if (server.engine_config().queue_type == lumen::models::QueueType::kAuto) {
    const auto lane = server.usual_lane_of(model);
    note.append(name_of(lane.queue_type)).append(": ").append(lane.why).append("; ");
  }
  return note + instances_text(server.instances_of(model));
}

// With the backends of the CPU, of the devices that the settings name, and of Python.
Result<std::unique_ptr<Server>> start_server(const ServerOptions& options) {
  const auto providers = lumen::models::parse_execution_providers(options.execution_providers);
  if (!providers.ok()) return providers.status();
  auto backends = lumen::backends::with_devices(*providers);
  lumen::backends::PythonOptions python = python_for_models(options.python);
  python.tell = [](const std::string& text) { spdlog::warn("{}", text); };
  backends.push_back(lumen::backends::make_python(std::move(python)));
  return Server::start(options, std::move(backends), report);
}

void warn_of_exposure(const ServerOptions& options) {
  const auto warn = [&options](std::string_view source, const std::string& address) {
    const std::string text = exposure_warning(source, address, options);
    if (!text.empty()) spdlog::warn("{}", text);
  };
  bool has_tcp = false;
  for (const lumen::net::ListeningSocket& socket : options.listening_sockets) {
    spdlog::info("{} is a socket of the service manager, in place of {}", socket.name,
                 socket.is_unix ? "--unix" : "--http and --grpc");
    has_tcp = has_tcp || !socket.is_unix;
    if (!socket.is_unix) warn("ListenStream=", socket.name);
  }
  if (has_tcp) return;
  warn("--http ", options.http_address);
  warn("--grpc ", options.grpc_address);
}

void warn_of_models(const Server& server, const ServerOptions& options) {
  for (const auto& model : server.models().models()) {
    if (model->state() == ModelState::kUnavailable) {
      spdlog::warn("model {}/{} is unavailable: {}", model->metadata().name,
                   model->metadata().version, model->reason());
    } else if (model->choice().answers_differ) {
      spdlog::warn("model {}/{} is served by {}, which {}", model->metadata().name,
                   model->metadata().version, model->choice().backend, model->choice().why);
    }
    warn_of_operators(*model);
  }
  if (server.models().models().empty()) {
    spdlog::warn("the model repository {} has no model; wanted <model>/<version>/model.onnx",
                 options.model_repository.string());
  }
}

// While it lives a crash tells the last requests of the server, too.
class RequestsInCrashReport {
 public:
  explicit RequestsInCrashReport(const Server& server) noexcept {
    lumen::telemetry::report_requests_of(&server.counters());
  }
  ~RequestsInCrashReport() { lumen::telemetry::report_requests_of(nullptr); }
  RequestsInCrashReport(const RequestsInCrashReport&) = delete;
  RequestsInCrashReport& operator=(const RequestsInCrashReport&) = delete;
};

int run_serve(const ServeArguments& arguments) {
  lumen::telemetry::report_crashes();
  configure_log_by_flags(arguments);
  auto gathered = gather_options(arguments);
  if (!gathered.ok()) return fail(gathered.status());
  ServerOptions& options = *gathered;
  configure_log(options.log_level, options.log_format);
  auto sockets = take_listening_sockets();
  if (!sockets.ok()) return fail(sockets.status());
  options.listening_sockets = std::move(*sockets);
  const ServiceManager manager;
  warn_of_exposure(options);  // before the port is open
  const sigset_t signals = block_signals();
  // Before there are queues: they begin with it.
  const uint64_t transfer_ns = lumen::measure_core_distance();
  spdlog::debug("a cache line takes about {} ns from core to core", transfer_ns);

  StopWhileLoading stopping;
  options.stop_loading = &stopping.stop();
  TrialProcesses trials({.execution_providers = options.execution_providers});
  options.load_trials = &trials;
  auto started = start_server(options);
  options.stop_loading = nullptr;
  const bool was_stopped = stopping.end() != 0;
  const bool has_failed = !started.ok() && started.status().code() != lumen::Code::kCancelled;
  if (has_failed) return fail(started.status());
  if (was_stopped) return 0;  // without having served
  Server& server = **started;
  const RequestsInCrashReport crashes(server);
  warn_of_models(server, options);
  if (!server.unix_note().empty()) spdlog::warn("{}", server.unix_note());
  warn_of_overcommit(options);
  const std::string note = lumen::server::overload_note(options, options.engine);
  if (!note.empty()) spdlog::warn("{}", note);
  const auto note_of = [&server](const lumen::models::Model& model) {
    return note_of_model(model, server);
  };
  print_banner(options, lumen::cpu_budget(), server.pinning(), server.models(), note_of,
               server.http_address(), server.grpc_address(), server.unix_path(), server.bus_path(),
               server.counters_path());
  manager.ready();
  const int number = wait_for_the_end(signals, arguments, server, options, manager);
  manager.stopping();
  const sigset_t again = stop_signals();
  pthread_sigmask(SIG_UNBLOCK, &again, nullptr);  // both have their default action
  const uint64_t delay_ns = number == SIGTERM ? options.drain_delay_ns : 0;
  if (delay_ns > 0) {
    server.begin_leaving();
    spdlog::info("{}: not ready any more, serving on for {} ms; a second signal ends at once",
                 strsignal(number), delay_ns / 1'000'000);
    std::this_thread::sleep_for(std::chrono::nanoseconds(delay_ns));
  }
  spdlog::info("{}: draining; a second signal ends at once", strsignal(number));
  server.drain();
  if (const auto csv = server.trace_counters()) {
    spdlog::info("csv lines: {} written, {} dropped", csv->written, csv->dropped);
  }
  const lumen::telemetry::Counters& counters = server.counters();
  spdlog::info("drained: {} requests, {} answered well, {} refused, {} failed",
               counters.total("requests"), counters.total("responses_2xx"),
               counters.total("responses_4xx"), counters.total("responses_5xx"));
  return 0;
}

std::string help_text(const Setting& setting) {
  static const ServerOptions defaults;
  const std::string value = setting.get(defaults);
  const std::string text = fmt::format("{} ({})", setting.help, setting.values_text());
  return value.empty() ? text : text + " [" + value + "]";
}

}  // namespace

void add_serve_command(CLI::App& app, int& exit_status) {
  CLI::App* command =
      app.add_subcommand("serve", "serve the models of a repository over HTTP, TCP and unix");
  auto arguments = std::make_shared<ServeArguments>();
  command
      ->add_option("--config", arguments->config_file,
                   "config.json with the sections \"engine\" and \"server\"; flags beat it; SIGHUP "
                   "reads it again")
      ->take_last();
  for (const Setting& setting : lumen::server::settings()) {
    command
        ->add_option_function<std::string>(
            setting.flag(),
            [arguments, &setting](const std::string& value) { arguments->flags[&setting] = value; },
            help_text(setting))
        ->type_name("")
        ->take_last()
        ->group("Section \"" + std::string(setting.section) + "\"");
  }
  command->callback([arguments, &exit_status] { exit_status = run_serve(*arguments); });
}
