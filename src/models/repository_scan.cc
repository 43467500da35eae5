// Walks a repository, and asks of each model, version and file whether its real path lies below the
// repository's. A backend opens a model's file by its name, so a user with the right to change the
// repository while it is read may give it another file; the check is for links that were put there
// by mistake or by a packer, not against the repository's owner.
// Any thread; the heap. Errors: the Status of each version found.
#include "models/repository_scan.h"

#include <lumen/base/limits.h>
#include <lumen/base/utf8.h>
#include <lumen/models/backend_choice.h>

#include "models/initial_states.h"
#include "models/model_config.h"
#include "models/scan_files.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace lumen::models {
namespace {

// Lumen's own config.json is under 1 KiB; the cap keeps a stray file from being read whole.
constexpr size_t kMaxConfigBytes = 64 * 1024;
// ImageNet's 1,000 names take 30 KB.
constexpr size_t kMaxLabelsBytes = 1024 * 1024;
constexpr const char* kLabelsFile = "labels.txt";

bool is_valid_name(std::string_view name) noexcept {
  const auto allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= limits::kMaxNameBytes && name != "." && name != ".." &&
         std::ranges::all_of(name, allowed);
}

bool is_digits(std::string_view text) noexcept {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// 0 for a text that is no version: signs, letters, 0 itself, leading zeros (01 and 1 would be two
// names of one version), more than 18 digits.
uint64_t version_number(std::string_view text) noexcept {
  if (!is_digits(text) || text.size() > 18 || text.front() == '0') return 0;
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// A name for lists and messages, for any bytes of the directory entry.
std::string printable(std::string_view name) {
  std::string text(name.substr(0, limits::kMaxNameBytes));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

Result<ModelOptions> read_config(int model_directory, const std::filesystem::path& path,
                                 const Bounds& bounds) {
  const auto text = read_small(model_directory, path, kMaxConfigBytes, bounds);
  if (!text.ok()) return text.status();
  if (!text->has_value()) return ModelOptions{};
  return parse_model_config(**text, path.string());
}

// A line each; the last one may lack its end.
Result<std::vector<std::string>> read_labels(int directory, const std::filesystem::path& path,
                                             const Bounds& bounds) {
  const auto text = read_small(directory, path, kMaxLabelsBytes, bounds);
  if (!text.ok()) return text.status();
  std::vector<std::string> labels;
  std::string_view rest = text->has_value() ? std::string_view(**text) : std::string_view();
  if (!is_utf8(rest)) {
    return Status::error(Code::kUnavailable, "%s is not UTF-8", path.c_str());
  }
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    labels.emplace_back(line);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (text->has_value() && labels.empty()) {
    return Status::error(Code::kUnavailable, "%s is empty; wanted a class a line", path.c_str());
  }
  return labels;
}

// Its own labels before those of the model's folder; its files' stamp behind those of that folder.
Status read_version_files(int directory, const std::filesystem::path& path, const Bounds& bounds,
                          ModelSource& source) {
  const Result<std::vector<Entry>> entries = list(directory, path);
  if (!entries.ok()) return entries.status();
  source.stamp += stamp_of(directory, *entries);
  Result<std::vector<std::string>> labels = read_labels(directory, path / kLabelsFile, bounds);
  if (!labels.ok()) return labels.status();
  if (!labels->empty()) source.label_lines = std::move(*labels);
  return {};
}

constexpr std::array kModelFiles = {"model.onnx", "model.xml", "model.py"};

const char* model_file_in(int directory) noexcept {
  for (const char* name : kModelFiles) {
    if (kind_at(directory, name) != Kind::kAbsent) return name;
  }
  return nullptr;
}

// Sets source.file, or says why there is none.
Status find_model_file(int model_directory, const std::filesystem::path& version_path,
                       const Bounds& bounds, ModelSource& source) {
  const UniqueFd directory = open_directory(model_directory, version_path.filename().c_str());
  if (!directory.valid()) return Status::from_errno(errno, "opening %s", version_path.c_str());
  std::string there;
  for (const char* name : kModelFiles) {
    if (kind_at(directory.get(), name) == Kind::kAbsent) continue;
    source.file = version_path / name;
    there.append(there.empty() ? "" : " and ").append(name);
  }
  if (source.file.empty() || there.find(' ') != std::string::npos) {
    return Status::error(Code::kUnavailable,
                         "%s holds %s; wanted one of model.onnx, model.xml and "
                         "model.py",
                         version_path.c_str(),
                         there.empty() ? "no file of a model" : there.c_str());
  }
  LUMEN_RETURN_IF_ERROR(check_file(directory.get(), source.file, bounds));
  // The weights of an IR; a model without weights has none.
  if (source.file.extension() == ".xml" && kind_at(directory.get(), "model.bin") != Kind::kAbsent) {
    LUMEN_RETURN_IF_ERROR(check_file(directory.get(), version_path / "model.bin", bounds));
  }
  for (const char* name : {"quantization.json", "quantization.rows"}) {
    if (kind_at(directory.get(), name) == Kind::kAbsent) continue;
    LUMEN_RETURN_IF_ERROR(check_file(directory.get(), version_path / name, bounds));
  }
  return read_version_files(directory.get(), version_path, bounds, source);
}

bool holds_model_file(int parent, const std::string& name) noexcept {
  const UniqueFd directory = open_directory(parent, name.c_str());
  return directory.valid() && model_file_in(directory.get()) != nullptr;
}

Status bad_name(const std::string& name) {
  return Status::error(Code::kUnavailable,
                       "model name '%s': wanted 1 to %zu of A-Z a-z 0-9 . _ -; rename the "
                       "directory",
                       name.c_str(), limits::kMaxNameBytes);
}

// `is_ensemble`: it has no file of a model.
Status check_version(int model_directory, const std::filesystem::path& path, const Bounds& bounds,
                     bool is_ensemble, FoundModel& found) {
  if (!is_valid_name(path.parent_path().filename().string())) return bad_name(found.source.name);
  LUMEN_RETURN_IF_ERROR(check_links(path, bounds));
  if (found.version_number == 0) {
    return Status::error(Code::kUnavailable,
                         "version '%s' in %s: wanted a whole number from 1, without leading zeros; "
                         "rename the directory",
                         found.source.version.c_str(), path.parent_path().c_str());
  }
  if (is_ensemble) return {};
  return find_model_file(model_directory, path, bounds, found.source);
}

// Of a folder without versions: the probable mistake, and the move that mends it. ok: it is no
// model.
Status misplaced(int directory, const std::filesystem::path& path,
                 const std::vector<Entry>& entries) {
  const std::string name = path.filename().string();
  if (const char* file = model_file_in(directory)) {
    if (is_digits(name)) {
      return Status::error(Code::kUnavailable,
                           "%s is a version of a model; give the folder above the model's as the "
                           "model repository: %s",
                           path.c_str(), path.parent_path().parent_path().c_str());
    }
    return Status::error(Code::kUnavailable, "%s/%s lies beside no version; move it to %s/1/%s",
                         path.c_str(), file, path.c_str(), file);
  }
  for (const Entry& entry : entries) {
    if (entry.kind != Kind::kDirectory) continue;
    const UniqueFd model = open_directory(directory, entry.name.c_str());
    if (!model.valid() || !holds_model_file(model.get(), "1")) continue;
    return Status::error(Code::kUnavailable,
                         "%s has no versions, and holds the model '%s'; give %s as the model "
                         "repository",
                         path.c_str(), printable(entry.name).c_str(), path.c_str());
  }
  return {};
}

// One backend alone serves a program.
void name_python(FoundModel& found) {
  std::string& backend = found.source.options.backend;
  if (found.status.ok() && !backend.empty() && backend != kAutoBackend &&
      backend != kPythonBackend) {
    found.status = Status::error(Code::kUnavailable,
                                 "config.json: key \"backend\": got \"%s\", wanted "
                                 "\"python\", which serves %s",
                                 backend.c_str(), found.source.file.c_str());
  }
  backend = kPythonBackend;
}

// Leaves the versions that are to be served; a listed one that is not there stands among them with
// the reason.
void apply_policy(const VersionPolicy& policy, const FoundModel& unversioned,
                  const std::filesystem::path& path, std::vector<FoundModel>& versions) {
  if (policy.kind == VersionPolicy::Kind::kLatest) {
    std::ranges::sort(versions, std::greater(), &FoundModel::version_number);
    versions.resize(std::min<size_t>(versions.size(), policy.latest));
  }
  if (policy.kind != VersionPolicy::Kind::kListed) return;
  std::erase_if(versions, [&](const FoundModel& one) {
    return std::ranges::find(policy.listed, one.source.version) == policy.listed.end();
  });
  for (const std::string& version : policy.listed) {
    const bool is_there = std::ranges::any_of(
        versions, [&](const FoundModel& one) { return one.source.version == version; });
    if (is_there) continue;
    FoundModel missing = unversioned;
    missing.source.version = version;
    missing.version_number = version_number(version);
    missing.status =
        Status::error(Code::kUnavailable,
                      "\"versions\" of its config.json names it, but there is no folder "
                      "%s/%s",
                      path.c_str(), version.c_str());
    versions.push_back(std::move(missing));
  }
}

void scan_model(int root, const std::filesystem::path& path, const Bounds& bounds,
                const std::optional<ConfigInstead>& instead, std::vector<FoundModel>& models) {
  const std::string name = path.filename().string();
  FoundModel unversioned;
  unversioned.source.name = printable(name);
  const UniqueFd directory = open_directory(root, name.c_str());
  Result<std::vector<Entry>> entries = directory.valid()
                                           ? list(directory.get(), path)
                                           : Status::from_errno(errno, "opening %s", path.c_str());
  if (!entries.ok()) {
    unversioned.status = entries.status();
    models.push_back(std::move(unversioned));
    return;
  }
  const bool has_other = instead && instead->model == name;
  Result<ModelOptions> options = has_other
                                     ? parse_model_config(instead->text, kConfigOfCall)
                                     : read_config(directory.get(), path / "config.json", bounds);
  Result<std::vector<std::string>> labels =
      read_labels(directory.get(), path / kLabelsFile, bounds);
  if (labels.ok()) unversioned.source.label_lines = std::move(*labels);
  unversioned.source.stamp = stamp_of(directory.get(), *entries);
  if (has_other) unversioned.source.stamp.append(instead->text);
  if (options.ok()) {
    const Status initial = read_initial_states(directory.get(), path, bounds, options->sequences,
                                               unversioned.source.stamp);
    if (!initial.ok()) options = initial;
  }
  const bool is_ensemble = options.ok() && !options->ensemble.steps.empty();
  std::vector<FoundModel> versions;
  for (const Entry& entry : *entries) {
    const bool may_be_directory = entry.kind == Kind::kDirectory || entry.kind == Kind::kDeadLink;
    const bool is_version = may_be_directory && (is_digits(entry.name) ||
                                                 holds_model_file(directory.get(), entry.name));
    if (!is_version) continue;
    FoundModel found = unversioned;
    found.source.version = printable(entry.name);
    found.version_number = version_number(entry.name);
    found.status = check_version(directory.get(), path / entry.name, bounds, is_ensemble, found);
    if (options.ok()) found.source.options = *options;
    if (found.source.file.extension() == ".py") name_python(found);
    if (found.status.ok()) found.status = options.status();
    if (found.status.ok()) found.status = labels.status();
    versions.push_back(std::move(found));
  }
  // It needs no folder of a version, which Triton wants and git does not keep where it is empty.
  if (is_ensemble && versions.empty()) {
    FoundModel& only = versions.emplace_back(unversioned);
    only.source.version = "1";
    only.version_number = 1;
    only.source.options = *options;
    only.status = is_valid_name(name) ? labels.status() : bad_name(unversioned.source.name);
  }
  if (!versions.empty()) {
    const VersionPolicy policy = options.ok() ? options->versions : VersionPolicy();
    apply_policy(policy, unversioned, path, versions);
    std::ranges::move(versions, std::back_inserter(models));
    return;
  }
  unversioned.status = misplaced(directory.get(), path, *entries);
  // A configuration that can't be read may be an ensemble's, which needs no version.
  if (unversioned.status.ok()) unversioned.status = options.status();
  if (!unversioned.status.ok()) models.push_back(std::move(unversioned));
}

// A file of a model that lies in the repository itself.
void add_loose_file(const std::filesystem::path& path, std::vector<FoundModel>& models) {
  FoundModel found;
  found.source.name = printable(path.stem().string());
  const std::filesystem::path wanted =
      path.parent_path() / path.stem() / "1" / ("model" + path.extension().string());
  found.status = Status::error(Code::kUnavailable, "%s lies in no folder of a model; move it to %s",
                               path.c_str(), wanted.c_str());
  models.push_back(std::move(found));
}

}  // namespace

Result<std::vector<FoundModel>> scan_repository(const std::filesystem::path& directory,
                                                const ScanOptions& options) {
  const UniqueFd root = open_directory(AT_FDCWD, directory.c_str());
  if (!root.valid()) {
    return Status::from_errno(errno,
                              "opening model repository %s (wanted a readable directory of "
                              "<model>/<version>/model.onnx, model.xml or model.py)",
                              directory.c_str());
  }
  Result<std::vector<Entry>> entries = list(root.get(), directory);
  if (!entries.ok()) return entries.status();
  std::error_code error;
  const Bounds bounds =
      options.follow_links ? Bounds() : std::filesystem::canonical(directory, error);
  if (error) return Status::from_errno(error.value(), "model repository %s", directory.c_str());
  std::vector<FoundModel> models;
  for (const Entry& entry : *entries) {
    const std::filesystem::path path = directory / entry.name;
    const bool is_loose_file = entry.kind == Kind::kFile && path.extension() == ".onnx";
    const std::string name = printable(is_loose_file ? path.stem().string() : entry.name);
    if (!options.only.empty() && name != options.only) continue;
    if (entry.kind == Kind::kDirectory || entry.kind == Kind::kDeadLink) {
      FoundModel found;
      found.status = check_links(path, bounds);
      if (found.status.ok()) {
        scan_model(root.get(), path, bounds, options.instead, models);
        continue;
      }
      found.source.name = name;
      models.push_back(std::move(found));
    } else if (is_loose_file) {
      add_loose_file(path, models);
    }
  }
  std::ranges::sort(models, [](const FoundModel& a, const FoundModel& b) {
    return std::tie(a.source.name, a.version_number, a.source.version) <
           std::tie(b.source.name, b.version_number, b.source.version);
  });
  return models;
}

}  // namespace lumen::models
