// Checks of the running servers: the memory of their models' instances. Threads, memory and errors:
// see checks.h.
#include "doctor/checks.h"

#include <lumen/base/machine_memory.h>
#include <lumen/telemetry/counters_reader.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>

namespace lumen::doctor {
namespace {

namespace fs = std::filesystem;

// More are not looked at: a page of findings, and a bound for a folder full of files of that name.
constexpr size_t kMostServers = 16;
// Named in a finding; the largest come first.
constexpr size_t kMostModels = 4;
// Beyond it a change, which has two sets of instances for a moment, may end in the kernel's killing
// the server.
constexpr double kMostShare = 0.5;

struct ModelMemory {
  std::string name;
  double instances = 0;
  double bytes_each = 0;
  [[nodiscard]] double bytes() const { return instances * bytes_each; }
};

std::string size_text(double bytes) {
  constexpr double kMiB = 1 << 20;
  std::array<char, 32> text;
  const bool is_large = bytes >= 1024 * kMiB;
  std::snprintf(text.data(), text.size(), is_large ? "%.1f GiB" : "%.1f MiB",
                is_large ? bytes / (1024 * kMiB) : bytes / kMiB);
  return text.data();
}

std::string count_text(double count) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.0f", count);
  return text.data();
}

// Any process may have written the file: a true name is of these alone (limits::kMaxNameBytes), and
// others could be bytes that a terminal obeys.
std::string printable(std::string_view name) {
  std::string text(name);
  for (char& c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    if (!is_plain) c = '?';
  }
  return text;
}

// "lumen-PID.counters" or "lumen-UID-PID.counters"; nullopt: another name.
std::optional<uint64_t> pid_of(std::string_view name, std::string_view prefix) {
  constexpr std::string_view kEnd = ".counters";
  if (!name.starts_with(prefix) || !name.ends_with(kEnd)) return std::nullopt;
  name = name.substr(0, name.size() - kEnd.size());
  const size_t dash = name.rfind('-');
  const auto pid = dash == name.npos ? std::nullopt : parse_number(name.substr(dash + 1));
  return pid && *pid <= INT32_MAX ? pid : std::nullopt;
}

// Path by process. A server's file is in one of the two folders.
std::map<uint64_t, fs::path> counters_files(const Machine& machine) {
  std::map<uint64_t, fs::path> found;
  const auto look_in = [&](const fs::path& folder, const std::string& prefix) {
    std::error_code error;
    fs::directory_iterator entries(machine.root / folder.relative_path(), error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      const std::string name = entries->path().filename().string();
      if (const auto pid = pid_of(name, prefix)) found.emplace(*pid, entries->path());
    }
  };
  if (machine.runtime_dir && machine.runtime_dir->starts_with('/')) {
    look_in(*machine.runtime_dir, "lumen-");
  }
  look_in("/dev/shm", "lumen-" + std::to_string(machine.user) + "-");
  return found;
}

// The largest first.
std::vector<ModelMemory> models_of(
    const std::vector<telemetry::CountersReader::ModelTotals>& counted) {
  std::vector<ModelMemory> models;
  for (const auto& one : counted) {
    if (one.totals[0] == 0) continue;
    models.push_back({.name = printable(one.name),
                      .instances = static_cast<double>(one.totals[0]),
                      .bytes_each = static_cast<double>(one.totals[1])});
  }
  std::ranges::stable_sort(models, std::greater(), &ModelMemory::bytes);
  return models;
}

std::string list_text(const std::vector<ModelMemory>& models) {
  std::string text;
  for (size_t i = 0; i < std::min(models.size(), kMostModels); ++i) {
    if (i > 0) text += ", ";
    text += count_text(models[i].instances) + " of " + models[i].name + " with " +
            size_text(models[i].bytes_each) + " each";
  }
  if (models.size() > kMostModels) {
    text += " and " + std::to_string(models.size() - kMostModels) + " models more";
  }
  return text;
}

// By the model that takes most of those that can have fewer.
Finding warned(Finding found, const std::vector<ModelMemory>& models) {
  const auto largest = std::ranges::find_if(models, [](const auto& m) { return m.instances > 1; });
  if (largest == models.end()) {
    return std::move(found).warn(
        "docker run --memory; memory.max of the cgroup; fewer models",
        "requests and a change of the configuration, which has two sets for a moment, find room");
  }
  const double fewer = std::max(1.0, static_cast<double>(uint64_t(largest->instances / 2)));
  return std::move(found).warn(
      "\"instances\": " + count_text(fewer) + " in " + largest->name + "/config.json",
      size_text((largest->instances - fewer) * largest->bytes_each) +
          " less, so that requests and a change, which has two sets for a moment, find room");
}

Finding finding_of(const Machine& machine, telemetry::CountersReader& reader) {
  constexpr std::array<std::string_view, 2> kCounters = {"instances", "instance_bytes"};
  const auto counted = reader.models(kCounters);
  if (!counted.ok()) return unknown(counted.status().message());
  const std::vector<ModelMemory> models = models_of(*counted);
  if (models.empty()) return text("no instances", "or a Lumen that does not count them");
  double bytes = 0;
  for (const ModelMemory& model : models) bytes += model.bytes();
  const MachineMemory memory = machine_memory(machine.root);
  const double share = bytes / static_cast<double>(memory.bytes);
  const bool is_machines = memory.source.starts_with("this machine");
  Finding found = number(bytes, "bytes",
                         "for instances, " + count_text(100 * share) + " % of " +
                             (is_machines ? "the machine's memory" : "the cgroup's memory") + ": " +
                             list_text(models));
  return share > kMostShare ? warned(std::move(found), models) : found;
}

}  // namespace

std::vector<Line> check_servers(const Machine& machine) {
  std::vector<Line> lines;
  for (const auto& [pid, path] : counters_files(machine)) {
    if (lines.size() == kMostServers) break;
    auto reader = telemetry::CountersReader::open(path);
    // One that ended meanwhile, the file of a dead server, and another user's.
    if (!reader.ok() || reader->user() != machine.user || !reader->is_of_live_server()) continue;
    lines.push_back({"server " + std::to_string(pid), finding_of(machine, *reader)});
  }
  return lines;
}

}  // namespace lumen::doctor
