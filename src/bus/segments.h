// The files, mappings and descriptors that a listener makes for one connection.
// Threads: the listener's. Memory: shared memory, reserved at once. Errors: Result.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>
#include <lumen/bus/peer.h>
#include <lumen/bus/stream_memory.h>

#include <memory>
#include <utility>

namespace lumen::bus {

// A file of our own, mapped for writing or reading, sealed so that the other side can do only the
// rest.
struct OwnPublisherFile {
  SharedFile file;
  std::shared_ptr<PublisherMemory> memory;
};
// `we_publish`: only this process can write it from then on.
[[nodiscard]] Result<OwnPublisherFile> make_publisher_file(const Geometry& geometry,
                                                           bool we_publish);

struct OwnCursorFile {
  SharedFile file;
  std::shared_ptr<CursorMemory> memory;
};
[[nodiscard]] Result<OwnCursorFile> make_cursor_file(bool we_subscribe);

struct OwnArea {
  SharedFile file;
  std::shared_ptr<FileMapping> mapping;
};
[[nodiscard]] Result<OwnArea> make_area(uint64_t bytes);

struct BellPair {
  UniqueFd ours;
  UniqueFd theirs;
};
[[nodiscard]] Result<BellPair> make_bells();

}  // namespace lumen::bus
