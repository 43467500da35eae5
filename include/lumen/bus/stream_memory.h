// StreamMemory: the shared memory of a stream as one process has mapped it.
// Threads: any; layout.h says which side writes which part. Memory: mappings, unmapped with the
// last owner.
// Errors: Result, with the call that the kernel refused and the fix.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>
#include <lumen/bus/layout.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace lumen::bus {

enum class Access : uint8_t { kRead, kReadWrite };

// A sealed memfd. Its size can't change any more, so that no access to a mapping of it faults
// (SIGBUS).
class SharedFile {
 public:
  // Pages are reserved now: too little memory is an error here, and no signal later.
  [[nodiscard]] static Result<SharedFile> create(const char* name, uint64_t bytes);
  // One that another process has made: refused unless its size is exactly that and sealed.
  [[nodiscard]] static Result<SharedFile> adopt(UniqueFd fd, uint64_t bytes);

  // Before it is sent: no seal can be added or taken any more. Access::kRead: a process that has
  // not mapped it for writing yet can't do so.
  [[nodiscard]] Status seal_for_others(Access access) noexcept;
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] uint64_t bytes() const noexcept { return bytes_; }

 private:
  SharedFile(UniqueFd fd, uint64_t bytes) noexcept : fd_(std::move(fd)), bytes_(bytes) {}
  UniqueFd fd_;
  uint64_t bytes_ = 0;
};

class FileMapping {
 public:
  // `twice_from`: from there on the file is mapped a second time behind its end; bytes(): not at
  // all.
  [[nodiscard]] static Result<FileMapping> map(const SharedFile& file, Access access,
                                               uint64_t twice_from);
  FileMapping() noexcept = default;
  FileMapping(FileMapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  FileMapping& operator=(FileMapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~FileMapping();
  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// A publisher's file, mapped.
class PublisherMemory {
 public:
  [[nodiscard]] static Result<std::shared_ptr<PublisherMemory>> map(const SharedFile& file,
                                                                    const Geometry& geometry,
                                                                    Access access);
  // Writes the header. By the process that has made the file, before another maps it.
  void initialise() noexcept;

  [[nodiscard]] PublisherPage& page() const noexcept {
    return *reinterpret_cast<PublisherPage*>(mapping_.data());
  }
  [[nodiscard]] Descriptor* descriptors() const noexcept {
    return reinterpret_cast<Descriptor*>(mapping_.data() + geometry_.descriptors_offset());
  }
  [[nodiscard]] std::byte* payload() const noexcept {
    return mapping_.data() + geometry_.payload_offset();
  }
  [[nodiscard]] const Geometry& geometry() const noexcept { return geometry_; }

 private:
  PublisherMemory(FileMapping mapping, const Geometry& geometry) noexcept
      : mapping_(std::move(mapping)), geometry_(geometry) {}
  FileMapping mapping_;
  Geometry geometry_;
};

// A cursor file, mapped.
class CursorMemory {
 public:
  [[nodiscard]] static Result<std::shared_ptr<CursorMemory>> map(const SharedFile& file,
                                                                 Access access);
  void initialise() noexcept;
  [[nodiscard]] CursorPage& page() const noexcept {
    return *reinterpret_cast<CursorPage*>(mapping_.data());
  }

 private:
  explicit CursorMemory(FileMapping mapping) noexcept : mapping_(std::move(mapping)) {}
  FileMapping mapping_;
};

}  // namespace lumen::bus
