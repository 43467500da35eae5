// The files of a repository as the scan sees them: kinds of entries, links that lead out, small
// files, stamps.
// Threads: any. Memory: the heap. Errors: a Status with the path.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lumen::models {

enum class Kind : uint8_t { kAbsent, kFile, kDirectory, kDeadLink, kOther };

struct Entry {
  std::string name;
  Kind kind;
};

// Of a link: the kind of its target.
[[nodiscard]] Kind kind_at(int directory, const char* name) noexcept;
[[nodiscard]] UniqueFd open_directory(int parent, const char* name) noexcept;
// Without hidden entries. `shown`: its path, for messages.
[[nodiscard]] Result<std::vector<Entry>> list(int directory, const std::filesystem::path& shown);

// The repository, by its real path; empty: links may lead anywhere.
using Bounds = std::filesystem::path;

// Of a path in the repository that is there: whether a link leads it out of `bounds`.
[[nodiscard]] Status check_links(const std::filesystem::path& path, const Bounds& bounds);
// Whether it is a regular file that can be read and is not empty. `directory`: of `path`.
[[nodiscard]] Status check_file(int directory, const std::filesystem::path& path,
                                const Bounds& bounds);
// Of all files in a folder: another file, another size or a later write makes another text.
[[nodiscard]] std::string stamp_of(int directory, const std::vector<Entry>& entries);
// The text of a small file; nullopt: there is none. `directory`: of `path`.
[[nodiscard]] Result<std::optional<std::string>> read_small(int directory,
                                                            const std::filesystem::path& path,
                                                            size_t most_bytes,
                                                            const Bounds& bounds);

}  // namespace lumen::models
