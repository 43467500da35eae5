// See the header for threads, memory and errors.
#include <lumen/transports/common/api_keys.h>

#include <lumen/base/unique_fd.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

namespace lumen::transports {
namespace {

constexpr std::string_view kBlanks = " \t\r";

// The next word of the line; empty: none.
std::string_view take_word(std::string_view& line) noexcept {
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  return word;
}

std::optional<Role> role_named(std::string_view word) noexcept {
  if (word == "infer") return Role::kInfer;
  if (word == "control") return Role::kControl;
  return std::nullopt;
}

bool is_key(std::string_view word) noexcept {
  const bool is_visible = std::ranges::all_of(word, [](char c) { return c > ' ' && c < 0x7f; });
  return is_visible && word.size() >= ApiKeys::kLeastKeyBytes &&
         word.size() <= ApiKeys::kMostKeyBytes;
}

// Empty: it is no "Bearer KEY".
std::string_view key_of(std::string_view authorization) noexcept {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() <= kScheme.size()) return {};
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  const std::string_view scheme = authorization.substr(0, kScheme.size());
  if (!std::ranges::equal(scheme, kScheme, {}, lower)) return {};
  authorization.remove_prefix(kScheme.size());
  authorization.remove_prefix(std::min(authorization.find_first_not_of(' '), authorization.size()));
  return authorization;
}

Result<std::string> text_of(const std::filesystem::path& file) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return Status::from_errno(errno, "api_key_file %s", file.c_str());
  struct stat found{};
  if (::fstat(fd.get(), &found) != 0) {
    return Status::from_errno(errno, "api_key_file %s", file.c_str());
  }
  if (!S_ISREG(found.st_mode)) {
    return Status::error(Code::kInvalidArgument, "api_key_file %s: wanted a file", file.c_str());
  }
  if ((found.st_mode & (S_IRWXO | S_IWGRP)) != 0) {
    return Status::error(Code::kForbidden,
                         "api_key_file %s: mode %03o lets other users read or change it; "
                         "chmod 600 it",
                         file.c_str(), found.st_mode & 0777);
  }
  std::string text(ApiKeys::kMostFileBytes + 1, '\0');
  size_t length = 0;
  while (length < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + length, text.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(errno, "api_key_file %s", file.c_str());
    if (got == 0) break;
    length += static_cast<size_t>(got);
  }
  if (length > ApiKeys::kMostFileBytes) {
    return Status::error(Code::kTooLarge, "api_key_file %s: wanted at most %zu bytes", file.c_str(),
                         ApiKeys::kMostFileBytes);
  }
  text.resize(length);
  return text;
}

}  // namespace

Result<ApiKeys> ApiKeys::read(const std::filesystem::path& file) {
  const Result<std::string> text = text_of(file);
  if (!text.ok()) return text.status();
  return parse(*text, "api_key_file " + file.string());
}

Result<ApiKeys> ApiKeys::parse(std::string_view text, std::string_view name) {
  ApiKeys keys;
  const std::string where(name);
  for (size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::string_view word = take_word(line);
    if (word.empty() || word.front() == '#') continue;
    const std::optional<Role> role = role_named(word);
    const std::string_view key = take_word(line);
    if (!role || !is_key(key) || !take_word(line).empty()) {
      return Status::error(Code::kInvalidArgument,
                           "%s:%zu: wanted infer or control, a blank, and a key of %zu to %zu "
                           "visible ASCII characters",
                           where.c_str(), number, kLeastKeyBytes, kMostKeyBytes);
    }
    if (keys.keys_.size() == kMostKeys) {
      return Status::error(Code::kTooLarge, "%s:%zu: wanted at most %zu keys", where.c_str(),
                           number, kMostKeys);
    }
    Key& added = keys.keys_.emplace_back();
    std::ranges::copy(key, added.bytes.begin());
    added.role = *role;
  }
  if (keys.keys_.empty()) {
    return Status::error(Code::kInvalidArgument,
                         "%s: it has no key, and nobody could use the server over TCP; wanted "
                         "lines like: infer KEY",
                         where.c_str());
  }
  return keys;
}

Role ApiKeys::role_of(std::string_view authorization) const noexcept {
  const std::string_view sent = key_of(authorization);
  if (sent.empty() || sent.size() > kMostKeyBytes) return Role::kNone;
  std::array<char, kMostKeyBytes> padded{};
  std::ranges::copy(sent, padded.begin());
  uint64_t role = 0;
  for (const Key& key : keys_) {
    uint64_t different = 0;
    for (size_t at = 0; at < kMostKeyBytes; at += sizeof(uint64_t)) {
      uint64_t own = 0;
      uint64_t other = 0;
      std::memcpy(&own, key.bytes.data() + at, sizeof(own));
      std::memcpy(&other, padded.data() + at, sizeof(other));
      different |= own ^ other;
    }
    // The compiler is not to end the loop at the first difference.
    asm volatile("" : "+r"(different));
    const uint64_t is_same = 1 ^ ((different | (0 - different)) >> 63);
    role = std::max(role, is_same * static_cast<uint64_t>(key.role));
  }
  return static_cast<Role>(role);
}

void ApiKeysInUse::replace(ApiKeys next, const std::function<void()>& wait_for_turns) {
  std::unique_ptr<const ApiKeys> before =
      std::exchange(owned_, std::make_unique<const ApiKeys>(std::move(next)));
  // sync[api_keys.current]: release; pairs with now()
  current_.store(owned_.get(), std::memory_order_release);
  if (before != nullptr) wait_for_turns();
}

}  // namespace lumen::transports
