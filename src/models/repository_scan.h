// Finds the model versions below a repository directory, without opening a model.
// Threads: any. Memory: the heap (control plane). Errors: an unreadable directory is an error;
// other faults stand in the Status of the version that they belong to.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/backend.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace lumen::models {

struct FoundModel {
  ModelSource source;
  uint64_t version_number = 0;  // 0: the version's name is not a valid one
  Status status;                // not ok: this version can't be loaded, with the reason
};

// The configuration of one model, in place of its config.json.
struct ConfigInstead {
  std::string_view model;
  std::string_view text;
};

struct ScanOptions {
  bool follow_links = false;
  std::optional<ConfigInstead> instead = std::nullopt;
  std::string_view only = {};  // the model of this name; empty: all
};

// Sorted by name, then version as a number. Skipped without a word: plain files, hidden entries and
// directories without a version in them (a repository may hold scripts). A symbolic link that leads
// out of `directory` (which itself may be one) is refused, unless options.follow_links; a link
// within it is taken as its target.
[[nodiscard]] Result<std::vector<FoundModel>> scan_repository(
    const std::filesystem::path& directory, const ScanOptions& options = {});

}  // namespace lumen::models
