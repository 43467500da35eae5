// A registration of shared memory (the first line is the region's name, the rest the body) and the
// region that it opens: no place outside of the object is ever given out, an error is one line, and
// the same text gives the same answer twice. The key "/object" is an object of this process.
#include <lumen/base/limits.h>
#include <lumen/service/shared_region.h>

#include "fuzz/fuzz_support.h"
#include "server/region_request.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>

using lumen::Result;
using lumen::Status;
using lumen::fuzz::Copy;
using lumen::server::parse_registration;
using lumen::service::SharedRegion;

namespace {

constexpr uint64_t kObjectBytes = 3 * 4096 + 100;

// Of this process, and gone with it.
class Object {
 public:
  Object() : name_("/fuzz-lumen-" + std::to_string(::getpid())) {
    const int fd = ::shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    LUMEN_CHECK(fd >= 0 && ::ftruncate(fd, kObjectBytes) == 0);
    ::close(fd);
  }
  ~Object() { ::shm_unlink(name_.c_str()); }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  const std::string name_;
};

void check_is_one_line(const Status& status) {
  LUMEN_CHECK(!status.message().empty());
  LUMEN_CHECK(std::ranges::none_of(status.message(), [](char c) { return c >= 0 && c < ' '; }));
}

// All places within it, and none beyond.
void check_parts(const SharedRegion& region) {
  const uint64_t bytes = region.source().byte_size;
  for (const uint64_t offset : {uint64_t{0}, bytes / 2, bytes - 1, bytes, bytes + 1, UINT64_MAX}) {
    for (const uint64_t part : {uint64_t{0}, uint64_t{1}, bytes / 2, bytes, UINT64_MAX}) {
      uint64_t end = 0;
      const bool fits = !__builtin_add_overflow(offset, part, &end) && end <= bytes;
      const auto place = region.part(offset, part);
      LUMEN_CHECK(place.ok() == fits);
      if (!fits) {
        check_is_one_line(place.status());
      } else if (part > 0) {
        place->front() = place->back() = std::byte{1};
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Object object;
  const Copy input(std::string_view(reinterpret_cast<const char*>(data), size));
  const size_t line = std::min(input.view().find('\n'), input.view().size());
  const std::string_view name = input.view().substr(0, line);
  const std::string_view body = input.view().substr(std::min(line + 1, input.view().size()));
  Result<SharedRegion::Source> source = parse_registration(name, body);
  LUMEN_CHECK(parse_registration(name, body).ok() == source.ok());
  if (!source.ok()) {
    check_is_one_line(source.status());
    return 0;
  }
  LUMEN_CHECK(source->name == name && name.size() <= lumen::limits::kMaxNameBytes);
  if (source->key != "/object" && source->key != "object") {
    // Other objects of this machine are not this target's: keys that name none are.
    if (source->key.find("lumen") == std::string::npos) return 0;
  } else {
    source->key = object.name();
  }
  const SharedRegion::Source asked = *source;
  const auto region = SharedRegion::open(*std::move(source), std::nullopt);
  uint64_t end = 0;
  const bool fits = asked.byte_size > 0 &&
                    !__builtin_add_overflow(asked.offset, asked.byte_size, &end) &&
                    end <= kObjectBytes;
  if (asked.key == object.name()) LUMEN_CHECK(region.ok() == fits);
  if (region.ok()) {
    check_parts(**region);
  } else {
    check_is_one_line(region.status());
  }
  return 0;
}
