// Formatting of Status messages. Any thread; never allocates (vsnprintf into the Status itself).
#include <lumen/base/result.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace lumen {

Status Status::verror(Code code, const char* format, va_list args) noexcept {
  Status status;
  status.code_ = code;
  const int wanted = std::vsnprintf(status.message_.data(), kMaxMessage, format, args);
  status.size_ = static_cast<uint16_t>(std::clamp<int>(wanted, 0, int{kMaxMessage} - 1));
  return status;
}

Status Status::error(Code code, const char* format, ...) noexcept {
  va_list args;
  va_start(args, format);
  Status status = verror(code, format, args);
  va_end(args);
  return status;
}

Status Status::at(std::string_view where) const noexcept {
  if (ok()) return {};
  return error(code_, "%.*s: %.*s", static_cast<int>(where.size()), where.data(),
               static_cast<int>(size_), message_.data());
}

Status Status::from_errno(int error_number, const char* format, ...) noexcept {
  va_list args;
  va_start(args, format);
  Status status = verror(Code::kInternal, format, args);
  va_end(args);
  char reason[128];
  // GNU strerror_r: may return a static string instead of filling the buffer; both are thread-safe.
  const char* text = strerror_r(error_number, reason, sizeof(reason));
  const size_t room = kMaxMessage - status.size_;
  const int added = std::snprintf(status.message_.data() + status.size_, room, ": %s (errno %d)",
                                  text, error_number);
  status.size_ = static_cast<uint16_t>(
      std::min(status.size_ + static_cast<size_t>(std::max(added, 0)), size_t{kMaxMessage} - 1));
  return status;
}

}  // namespace lumen
