// Makes the files of segments.h. Control plane. Errors: Status from the kernel, with the fix.
#include "bus/segments.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace lumen::bus {
namespace {

// Mapped for writing first, since nobody can once it is sealed; the reader's own mapping is
// read-only.
template <typename Memory, typename Map>
Result<std::shared_ptr<Memory>> initialised(SharedFile& file, bool we_write, Map&& map) {
  Result<std::shared_ptr<Memory>> writable = map(file, Access::kReadWrite);
  if (!writable.ok()) return writable.status();
  (*writable)->initialise();
  LUMEN_RETURN_IF_ERROR(file.seal_for_others(we_write ? Access::kRead : Access::kReadWrite));
  if (we_write) return writable;
  return map(file, Access::kRead);
}

}  // namespace

Result<OwnPublisherFile> make_publisher_file(const Geometry& geometry, bool we_publish) {
  auto file = SharedFile::create("lumen-bus-ring", geometry.file_bytes());
  if (!file.ok()) return file.status();
  auto memory = initialised<PublisherMemory>(*file, we_publish, [&](SharedFile& f, Access access) {
    return PublisherMemory::map(f, geometry, access);
  });
  if (!memory.ok()) return memory.status();
  return OwnPublisherFile{std::move(file).value(), std::move(memory).value()};
}

Result<OwnCursorFile> make_cursor_file(bool we_subscribe) {
  auto file = SharedFile::create("lumen-bus-cursor", sizeof(CursorPage));
  if (!file.ok()) return file.status();
  auto memory = initialised<CursorMemory>(*file, we_subscribe, [](SharedFile& f, Access access) {
    return CursorMemory::map(f, access);
  });
  if (!memory.ok()) return memory.status();
  return OwnCursorFile{std::move(file).value(), std::move(memory).value()};
}

Result<OwnArea> make_area(uint64_t bytes) {
  auto file = SharedFile::create("lumen-bus-area", bytes);
  if (!file.ok()) return file.status();
  auto mapping = FileMapping::map(*file, Access::kReadWrite, bytes);
  if (!mapping.ok()) return mapping.status();
  LUMEN_RETURN_IF_ERROR(file->seal_for_others(Access::kReadWrite));
  return OwnArea{std::move(file).value(),
                 std::make_shared<FileMapping>(std::move(mapping).value())};
}

Result<BellPair> make_bells() {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()) != 0) {
    return Status::from_errno(errno, "bus: making a socket pair");
  }
  return BellPair{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

}  // namespace lumen::bus
