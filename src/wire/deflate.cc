// See the header.
#include <lumen/wire/deflate.h>

#include <lumen/base/check.h>

#include <libdeflate.h>

namespace lumen::wire {
namespace {

// The higher levels make replies of numbers hardly smaller, and take up to twice as long.
constexpr int kLevel = 1;

}  // namespace

void Deflater::Free::operator()(libdeflate_compressor* compressor) const noexcept {
  ::libdeflate_free_compressor(compressor);
}

std::optional<Deflater> Deflater::create() noexcept {
  libdeflate_compressor* const compressor = ::libdeflate_alloc_compressor(kLevel);
  if (compressor == nullptr) return std::nullopt;
  return Deflater(compressor);
}

size_t Deflater::compress(ContentCoding coding, std::span<const std::byte> body,
                          std::span<std::byte> out) noexcept {
  LUMEN_CHECK(coding != ContentCoding::kIdentity);
  const auto by =
      coding == ContentCoding::kGzip ? &::libdeflate_gzip_compress : &::libdeflate_zlib_compress;
  return by(compressor_.get(), body.data(), body.size(), out.data(), out.size());
}

}  // namespace lumen::wire
