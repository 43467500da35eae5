// See the header.
#include "backends/failure.h"

namespace lumen::backends {

Status failed(Code code, const char* doing, const std::string& model, const char* what) noexcept {
  char text[Status::kMaxMessage];
  size_t size = 0;
  for (const char* c = what; *c != '\0' && size + 1 < sizeof(text); ++c) {
    const bool space = *c == '\n' || *c == '\r' || *c == '\t' || *c == ' ';
    if (space && (size == 0 || text[size - 1] == ' ')) continue;
    text[size++] = space ? ' ' : *c;
  }
  while (size > 0 && text[size - 1] == ' ') --size;
  text[size] = '\0';
  return Status::error(code, "%s model '%s': %s", doing, model.c_str(), text);
}

Status no_room(const std::string& output, size_t bytes) noexcept {
  return Status::error(Code::kTooLarge,
                       "output '%s' needs %zu bytes, more than the request's memory has left",
                       output.c_str(), bytes);
}

}  // namespace lumen::backends
