// A file's bytes without a copy of them in memory: of a model, all but a few lie in weights that
// nobody here reads.
// Threads: one. Memory: a mapping. Errors: no bytes, if the file can't be read; the next function
// that opens it says why.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lumen {

class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path) {
    std::error_code error;
    const size_t size = std::filesystem::file_size(path, error);
    const int file = error || size == 0 ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    ::close(file);
    if (data != MAP_FAILED) bytes_ = {static_cast<const std::byte*>(data), size};
  }
  ~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace lumen
