// Reads files of /proc and /sys, whose size is not known before. Threads, memory and errors: see
// the header.
#include "doctor/machine.h"

#include <lumen/base/unique_fd.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <system_error>

namespace lumen::doctor {
namespace {

// Kernels are built for up to 8192 CPUs; a longer list is no list of CPUs.
constexpr uint64_t kMaxCpus = 8192;

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

Status not_as_expected(std::string_view path, const char* wanted, std::string_view got) {
  return Status::error(Code::kInternal, "%.*s: got '%.*s', wanted %s",
                       static_cast<int>(path.size()), path.data(),
                       static_cast<int>(std::min<size_t>(got.size(), 60)), got.data(), wanted);
}

}  // namespace

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::vector<uint32_t>> parse_cpu_list(std::string_view text) {
  std::vector<uint32_t> cpus;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view range = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t dash = range.find('-');
    const auto first = parse_number(range.substr(0, dash));
    const auto last = dash == range.npos ? first : parse_number(range.substr(dash + 1));
    if (!first || !last || *first > *last || *last >= kMaxCpus) return std::nullopt;
    for (uint64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<uint32_t>(cpu));
  }
  if (cpus.empty()) return std::nullopt;
  return cpus;
}

Result<std::string> Machine::read(std::string_view path) const {
  const std::filesystem::path file = root / std::filesystem::path(path).relative_path();
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  std::string content;
  std::array<char, 4096> part;
  ssize_t size = fd.valid() ? 1 : -1;
  while (size > 0 && (size = ::read(fd.get(), part.data(), part.size())) > 0) {
    content.append(part.data(), static_cast<size_t>(size));
  }
  if (size < 0) {
    const int error = errno;
    return Status::error(error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kForbidden,
                         "%.*s: %s", static_cast<int>(path.size()), path.data(),
                         std::generic_category().message(error).c_str());
  }
  return std::string(trim(content));
}

Result<uint64_t> Machine::read_number(std::string_view path) const {
  Result<std::string> content = read(path);
  if (!content.ok()) return content.status();
  if (const auto value = parse_number(*content)) return *value;
  return not_as_expected(path, "a number", *content);
}

bool Machine::exists(std::string_view path) const {
  std::error_code error;
  return std::filesystem::exists(root / std::filesystem::path(path).relative_path(), error);
}

Result<std::string> Machine::read_line(std::string_view path, std::string_view key) const {
  Result<std::string> content = read(path);
  if (!content.ok()) return content.status();
  for (std::string_view rest = *content; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.starts_with(key)) return std::string(trim(line.substr(key.size())));
  }
  return Status::error(Code::kNotFound, "%.*s: it has no line '%.*s'",
                       static_cast<int>(path.size()), path.data(), static_cast<int>(key.size()),
                       key.data());
}

Result<std::vector<uint32_t>> Machine::usable_cpus() const {
  constexpr std::string_view kStatus = "/proc/self/status";
  Result<std::string> list = read_line(kStatus, "Cpus_allowed_list:");
  if (!list.ok()) return list.status();
  if (auto cpus = parse_cpu_list(*list)) return std::move(*cpus);
  return not_as_expected(kStatus, "a list of CPUs", *list);
}

}  // namespace lumen::doctor
