// scan_repository over folders that the input describes, a line each: "d PATH" a folder,
// "f PATH TEXT" a file, "l PATH TARGET" a symbolic link, "p PATH" a pipe. A version without a fault
// has a valid name and a file that really lies in the repository. The same folders give the same
// answer twice.
#include <lumen/base/limits.h>

#include "fuzz/fuzz_support.h"
#include "models/repository_scan.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace fs = std::filesystem;
using lumen::models::FoundModel;
using lumen::models::scan_repository;

namespace {

constexpr size_t kMostLines = 40;
constexpr size_t kMostFileBytes = 4096;

// A fresh folder that goes with the object.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "lumen-fuzz-XXXXXX").string();
    LUMEN_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string_view take_until(std::string_view& text, char end) {
  const std::string_view taken = text.substr(0, text.find(end));
  text.remove_prefix(std::min(taken.size() + 1, text.size()));
  return taken;
}

// Nothing is written outside of the folder, not even through a link that the input has made.
bool is_inside(const fs::path& folder, const fs::path& relative) {
  if (relative.empty() || relative.is_absolute()) return false;
  if (std::ranges::find(relative, fs::path("..")) != relative.end()) return false;
  std::error_code error;
  const fs::path parent = fs::weakly_canonical((folder / relative).parent_path(), error);
  return !error &&
         std::ranges::mismatch(fs::canonical(folder), parent).in1 == fs::canonical(folder).end();
}

void make(const fs::path& folder, std::string_view line) {
  const std::string_view kind = take_until(line, ' ');
  const std::string name(take_until(line, ' '));
  if (name.size() > 300 || name.find('\0') != std::string::npos) return;
  std::error_code ignored;
  const fs::path path = folder / name;
  if (!is_inside(folder, name) || fs::is_symlink(path, ignored)) return;
  if (kind == "d") fs::create_directories(path, ignored);
  if (kind == "f" && !fs::exists(path, ignored)) {
    std::ofstream(path, std::ios::binary) << line.substr(0, kMostFileBytes);
  }
  if (kind == "l" && line.find('\0') == std::string_view::npos) {
    fs::create_symlink(fs::path(line), path, ignored);
  }
  if (kind == "p") (void)::mkfifo(path.c_str(), 0600);
}

bool is_valid(std::string_view name) {
  return !name.empty() && name.size() <= lumen::limits::kMaxNameBytes &&
         std::ranges::all_of(name, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                  c == '.' || c == '_' || c == '-';
         });
}

bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

void check(const FoundModel& found, const fs::path& root, bool follows_links) {
  LUMEN_CHECK(is_printable(found.source.name) && is_printable(found.source.version));
  if (!found.status.ok()) {
    LUMEN_CHECK(!found.status.message().empty());
    return;
  }
  LUMEN_CHECK(is_valid(found.source.name) && found.version_number > 0);
  LUMEN_CHECK(found.source.version == std::to_string(found.version_number));
  const fs::path real = fs::canonical(found.source.file);
  LUMEN_CHECK(fs::is_regular_file(real) && fs::file_size(real) > 0);
  if (!follows_links) LUMEN_CHECK(std::ranges::mismatch(root, real).in1 == root.end());
}

std::vector<FoundModel> scan(const fs::path& folder, bool follows_links) {
  auto found = scan_repository(folder, {.follow_links = follows_links});
  LUMEN_CHECK(found.ok());
  for (const FoundModel& one : *found) check(one, fs::canonical(folder), follows_links);
  return *std::move(found);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Folder folder;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  for (size_t lines = 0; !text.empty() && lines < kMostLines; ++lines) {
    make(folder.path(), take_until(text, '\n'));
  }
  const std::vector<FoundModel> first = scan(folder.path(), false);
  const std::vector<FoundModel> second = scan(folder.path(), false);
  LUMEN_CHECK(first.size() == second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    LUMEN_CHECK(first[i].source.name == second[i].source.name);
    LUMEN_CHECK(first[i].source.version == second[i].source.version);
    LUMEN_CHECK(first[i].source.stamp == second[i].source.stamp);
    LUMEN_CHECK(first[i].status.message() == second[i].status.message());
  }
  (void)scan(folder.path(), true);
  return 0;
}
