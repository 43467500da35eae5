// See the header.
#include <lumen/base/text_file.h>

#include <lumen/base/unique_fd.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace lumen {
namespace {

constexpr size_t kStepBytes = 64 * 1024;

}  // namespace

Result<std::string> read_file(const std::filesystem::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Status::from_errno(errno, "opening %s", path.c_str());
  std::string text;
  for (size_t length = 0;;) {
    text.resize(length + kStepBytes);
    const ssize_t got = ::read(fd.get(), text.data() + length, kStepBytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(errno, "reading %s", path.c_str());
    length += static_cast<size_t>(got);
    if (got > 0) continue;
    text.resize(length);
    return text;
  }
}

}  // namespace lumen
