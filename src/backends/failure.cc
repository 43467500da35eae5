// See the header.
#include "backends/failure.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace lumen::backends {
namespace {

// Leaves room in a Status for the model's name and for a second backend's reason.
constexpr size_t kMostReasonBytes = 240;

bool is_space(char c) noexcept { return c == '\n' || c == '\r' || c == '\t' || c == ' '; }

// "/onnxruntime_src/core/text.cc:235": a place in the library's own source helps no user of Lumen.
bool is_source_position(std::string_view word) noexcept {
  if (word.find('/') == std::string_view::npos) return false;
  return std::ranges::any_of(std::array<std::string_view, 4>{".cc:", ".cpp:", ".h:", ".hpp:"},
                             [word](std::string_view end) { return word.find(end) != word.npos; });
}

}  // namespace

Status failed(Code code, const char* doing, const std::string& model, const char* what) noexcept {
  std::array<char, 4096> text;
  size_t size = 0;
  for (std::string_view rest = what; !rest.empty();) {
    const auto* const end = std::ranges::find_if(rest, is_space);
    std::string_view word = rest.substr(0, static_cast<size_t>(end - rest.begin()));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    if (word.empty() || is_source_position(word)) continue;
    word = word.substr(0, text.size() / 2 - 1);
    if (size + word.size() + 1 > text.size()) {  // its end is kept
      size -= text.size() / 2;
      std::memmove(text.data(), text.data() + text.size() / 2, size);
    }
    if (size > 0) text[size++] = ' ';
    size += word.copy(text.data() + size, word.size());
  }
  // A library says first where it was, and the cause last.
  std::string_view reason(text.data(), size);
  const char* cut = "";
  if (reason.size() > kMostReasonBytes) {
    reason.remove_prefix(reason.size() - kMostReasonBytes);
    reason.remove_prefix(std::min(reason.find(' ') + 1, reason.size()));
    cut = "... ";
  }
  return Status::error(code, "%s model '%s': %s%.*s", doing, model.c_str(), cut,
                       static_cast<int>(reason.size()), reason.data());
}

Status no_room(const std::string& output, size_t bytes) noexcept {
  return Status::error(Code::kTooLarge,
                       "output '%s' needs %zu bytes, more than the request's memory has left",
                       output.c_str(), bytes);
}

}  // namespace lumen::backends
