// Deflater: a whole body compressed as gzip (RFC 1952) or deflate (RFC 1950), by libdeflate at its
// quickest level.
// Threads: one at a time. Memory: some 100 KiB of the heap at create(); none afterwards.
// Errors: nullopt; 0.
#pragma once

#include <lumen/wire/content_coding.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

struct libdeflate_compressor;

namespace lumen::wire {

class Deflater {
 public:
  // nullopt: there is no memory.
  [[nodiscard]] static std::optional<Deflater> create() noexcept;

  // Into `out`, which does not overlap the body. Returns the bytes written; 0: they do not fit.
  // `coding` is not the identity.
  [[nodiscard]] size_t compress(ContentCoding coding, std::span<const std::byte> body,
                                std::span<std::byte> out) noexcept;

 private:
  struct Free {
    void operator()(libdeflate_compressor* compressor) const noexcept;
  };
  explicit Deflater(libdeflate_compressor* compressor) noexcept : compressor_(compressor) {}

  std::unique_ptr<libdeflate_compressor, Free> compressor_;
};

}  // namespace lumen::wire
