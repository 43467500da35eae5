// See the header.
#include "models/initial_states.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

namespace lumen::models {
namespace {

constexpr const char* kInitialStateFolder = "initial_state";
// A state of a large recurrent net takes less than 1 MiB.
constexpr size_t kMostInitialBytes = size_t{16} << 20;

}  // namespace

Status read_initial_states(int directory, const std::filesystem::path& path, const Bounds& bounds,
                           SequenceOptions& options, std::string& stamp) {
  if (std::ranges::all_of(options.states, &std::string::empty, &StateOptions::initial_file)) {
    return {};
  }
  const std::filesystem::path shown = path / kInitialStateFolder;
  const UniqueFd folder = open_directory(directory, kInitialStateFolder);
  if (!folder.valid()) return Status::from_errno(errno, "opening %s", shown.c_str());
  Result<std::vector<Entry>> entries = list(folder.get(), shown);
  if (!entries.ok()) return entries.status();
  stamp += stamp_of(folder.get(), *entries);
  for (StateOptions& state : options.states) {
    if (state.initial_file.empty()) continue;
    const std::filesystem::path file = shown / state.initial_file;
    const auto text = read_small(folder.get(), file, kMostInitialBytes, bounds);
    if (!text.ok()) return text.status();
    if (!text->has_value()) {
      return Status::error(Code::kUnavailable,
                           "config.json: state of input '%s': there is no file %s",
                           state.input.substr(0, 100).c_str(), file.c_str());
    }
    std::ranges::copy(std::as_bytes(std::span(**text)), std::back_inserter(state.initial));
  }
  return {};
}

}  // namespace lumen::models
