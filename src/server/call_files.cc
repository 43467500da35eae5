// See the header.
#include "server/call_files.h"

#include <lumen/base/base64.h>
#include <lumen/base/limits.h>
#include <lumen/base/unique_fd.h>

#include <nlohmann/json.hpp>

#include "server/job_json.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <system_error>

namespace lumen::server {
namespace {

using nlohmann::json;

constexpr std::string_view kPrefix = "file:";
// As many as a version of 19 digits and a name need.
constexpr size_t kMostVersionDigits = 19;

bool is_digits(std::string_view text) {
  return !text.empty() && text.size() <= kMostVersionDigits &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// Of a model or a file: it leads nowhere else, and is not hidden.
bool is_name(std::string_view text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= limits::kMaxNameBytes && text.front() != '.' &&
         std::ranges::all_of(text, is_plain);
}

Status write_all(const std::filesystem::path& path, std::string_view bytes) {
  const UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return Status::from_errno(errno, "making %s", path.c_str());
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Status::from_errno(errno, "writing %s", path.c_str());
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

}  // namespace

std::string CallFiles::first_key(const json& parameters) {
  for (const auto& [key, value] : parameters.items()) {
    if (key.starts_with(kPrefix)) return key;
  }
  return {};
}

Result<std::unique_ptr<CallFiles>> CallFiles::write(std::string_view model,
                                                    const json& parameters) {
  if (!is_name(model)) {
    return Status::error(Code::kInvalidArgument,
                         "model %s: got files for it, wanted a name of at most %zu letters, "
                         "digits, '.', '_' and '-' for the folder",
                         shown(json(std::string(model))).c_str(), limits::kMaxNameBytes);
  }
  std::error_code error;
  std::string folder =
      (std::filesystem::temp_directory_path(error) / "lumen-model-XXXXXX").string();
  if (error) return Status::from_errno(error.value(), "finding $TMPDIR, or /tmp");
  // Its owner's alone: 0700.
  if (::mkdtemp(folder.data()) == nullptr) {
    return Status::from_errno(errno, "making the folder %s", folder.c_str());
  }
  std::unique_ptr<CallFiles> files(new CallFiles(folder));
  for (const auto& [key, value] : parameters.items()) {
    if (key.starts_with(kPrefix)) LUMEN_RETURN_IF_ERROR(files->add(model, key, value));
  }
  return files;
}

Status CallFiles::add(std::string_view model, const std::string& key, const json& value) {
  const std::string_view path = std::string_view(key).substr(kPrefix.size());
  const size_t slash = path.find('/');
  const std::string_view version = path.substr(0, slash);
  const std::string_view name = slash == path.npos ? std::string_view() : path.substr(slash + 1);
  if (!is_digits(version) || !is_name(name)) {
    return Status::error(Code::kInvalidArgument,
                         "parameter %s: wanted a version and a file's name, as "
                         "\"file:1/model.onnx\"",
                         shown(json(key)).c_str());
  }
  if (name.ends_with(".py")) {
    return Status::error(
        Code::kForbidden,
        "parameter %s: a call may bring no program; put it into the model repository",
        shown(json(key)).c_str());
  }
  const std::optional<std::string> bytes =
      value.is_string() ? decode_base64(value.get_ref<const std::string&>()) : std::nullopt;
  if (!bytes) {
    return Status::error(Code::kInvalidArgument, "parameter %s: got %s, wanted the file in base64",
                         shown(json(key)).c_str(), shown(value).c_str());
  }
  const std::filesystem::path folder = repository_ / model / version;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Status::from_errno(error.value(), "making the folder %s", folder.c_str());
  return write_all(folder / name, *bytes);
}

CallFiles::~CallFiles() {
  std::error_code error;  // a file that can't be removed stays: nobody is there to be told
  std::filesystem::remove_all(repository_, error);
}

}  // namespace lumen::server
