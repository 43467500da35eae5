// Reads /proc/self/status. A file of its own: the simulation links another. See the header.
#include <lumen/base/process_memory.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

namespace lumen {

uint64_t anonymous_bytes() {
  constexpr std::string_view kKey = "RssAnon:";  // "RssAnon:\t    1234 kB"
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(kKey)) continue;
    const size_t first = std::min(line.find_first_not_of(" \t", kKey.size()), line.size());
    uint64_t kib = 0;
    (void)std::from_chars(line.data() + first, line.data() + line.size(), kib);
    return kib * 1024;
  }
  return 0;
}

}  // namespace lumen
