// Checks of where a server puts its files and sockets. Threads, memory and errors: see checks.h.
#include "doctor/checks.h"

#include <algorithm>

namespace lumen::doctor {
namespace {

// The counters file of a server with all its models and threads, and room for others. Docker's
// default is as much.
constexpr uint64_t kLeastShmBytes = uint64_t{64} << 20;

// The folder that logind has made, or a folder for this user alone on a tmpfs.
std::string runtime_dir_mend(const Machine& machine) {
  const Result<std::string> ids = machine.read_line("/proc/self/status", "Uid:");
  if (ids.ok()) {
    const std::string folder = "/run/user/" + ids->substr(0, ids->find_first_of(" \t"));
    if (machine.exists(folder)) return "export XDG_RUNTIME_DIR=" + folder;
  }
  return "export XDG_RUNTIME_DIR=$(mktemp -d -p /dev/shm)";
}

std::string mib(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

Finding check_dev_shm(const Machine& machine) {
  const Result<FileSystem> shm = machine.file_system("/dev/shm");
  if (!shm.ok()) return unknown(shm.status().message());
  Finding found = number(static_cast<double>(shm->bytes), "bytes", mib(shm->free_bytes) + " free");
  if (!shm->is_tmpfs) {
    found.note += ", not a tmpfs";
    return std::move(found).warn("sudo mount -t tmpfs -o size=1g tmpfs /dev/shm",
                                 "counters there never wait for a disk");
  }
  if (shm->free_bytes >= kLeastShmBytes) return found;
  return std::move(found).warn("sudo mount -o remount,size=1g /dev/shm; docker run --shm-size 1g",
                               "counters files fit, and a server is not refused its start");
}

Finding check_runtime_dir(const Machine& machine) {
  constexpr std::string_view kGain =
      "the unix socket, for live changes, and the counters file have a place";
  const std::string how = runtime_dir_mend(machine);
  if (!machine.runtime_dir || machine.runtime_dir->empty()) {
    return text("not set").warn(how, std::string(kGain));
  }
  const std::string& folder = *machine.runtime_dir;
  if (!folder.starts_with('/')) {
    return text(folder, "not absolute, so not obeyed").warn(how, std::string(kGain));
  }
  const Result<FileSystem> found = machine.file_system(folder);
  if (!found.ok() && found.status().code() == Code::kNotFound) {
    return text(folder, "not there").warn(how, std::string(kGain));
  }
  if (!found.ok()) return unknown(found.status().message());
  if (!machine.is_writable(folder)) {
    return text(folder, "not writable").warn(how, std::string(kGain));
  }
  if (found->is_tmpfs) return text(folder, "tmpfs, " + mib(found->free_bytes) + " free");
  return text(folder, "not a tmpfs").warn(how, "a counters file there never waits for a disk");
}

// A server raises its own limit as far as the hard one.
Finding check_descriptors(const Machine& machine) {
  const Result<std::string> limits = machine.read_line("/proc/self/limits", "Max open files");
  if (!limits.ok()) return unknown(limits.status().message());
  // "1024   524288   files"
  const size_t soft_end = std::min(limits->find(' '), limits->size());
  const size_t begin = std::min(limits->find_first_not_of(' ', soft_end), limits->size());
  const std::string hard = limits->substr(begin, limits->find(' ', begin) - begin);
  const std::string needed = std::to_string(machine.descriptors_needed);
  const std::string note = "at most; a server by default needs " + needed;
  if (hard == "unlimited") return text(hard, note);
  const auto number_of_them = parse_number(hard);
  if (!number_of_them)
    return unknown("/proc/self/limits: got '" + *limits + "', wanted two limits");
  Finding found = number(static_cast<double>(*number_of_them), "", note);
  if (*number_of_them >= machine.descriptors_needed) return found;
  return std::move(found).warn(
      "docker run --ulimit nofile=" + needed + "; LimitNOFILE=" + needed + " of systemd",
      "all connections that max_connections allows are served");
}

// The one that StringNormalizer of ONNX means where a model names none, and all other locales come
// with it.
Finding check_locale(const Machine& machine) {
  constexpr const char* kUsual = "en_US.UTF-8";
  if (machine.has_locale(kUsual)) return text(kUsual);
  return text("no " + std::string(kUsual))
      .warn("sudo apt-get install locales-all",
            "models that change the case of texts (StringNormalizer) load");
}

}  // namespace lumen::doctor
