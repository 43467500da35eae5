// Picture files for tests, written by the encoders of libjpeg-turbo and libspng.
// Threads: one. Memory: the heap. Errors: CHECK.
#pragma once

#include <lumen/base/check.h>

#include <cstdint>
#include <cstdio>  // jpeglib.h needs it first
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include <jpeglib.h>
#include <spng.h>

namespace lumen::test {

using Bytes = std::vector<std::byte>;

inline std::vector<uint8_t> some_pixels(size_t count) {
  std::vector<uint8_t> pixels(count);
  uint32_t state = 1;
  for (uint8_t& one : pixels) {
    state = state * 1'664'525u + 1'013'904'223u;
    one = static_cast<uint8_t>(state >> 24);
  }
  return pixels;
}

inline Bytes png_file(uint32_t width, uint32_t height, uint8_t color_type,
                      std::span<const uint8_t> pixels, bool is_interlaced = false) {
  spng_ctx* const context = ::spng_ctx_new(SPNG_CTX_ENCODER);
  LUMEN_CHECK(context != nullptr);
  ::spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr head{};
  head.width = width;
  head.height = height;
  head.bit_depth = 8;
  head.color_type = color_type;
  head.interlace_method = is_interlaced ? SPNG_INTERLACE_ADAM7 : SPNG_INTERLACE_NONE;
  LUMEN_CHECK(::spng_set_ihdr(context, &head) == 0);
  LUMEN_CHECK(::spng_encode_image(context, pixels.data(), pixels.size(), SPNG_FMT_PNG,
                                  SPNG_ENCODE_FINALIZE) == 0);
  size_t size = 0;
  int error = 0;
  void* const file = ::spng_get_png_buffer(context, &size, &error);
  LUMEN_CHECK(file != nullptr);
  const auto* const begin = static_cast<const std::byte*>(file);
  Bytes bytes(begin, begin + size);
  std::free(file);
  ::spng_ctx_free(context);
  return bytes;
}

struct JpegKind {
  J_COLOR_SPACE colors = JCS_RGB;
  int channels = 3;
  bool is_progressive = false;
  int scans = 0;  // 0: as usual
};

inline Bytes jpeg_file(uint32_t width, uint32_t height, std::span<const uint8_t> pixels,
                       const JpegKind& kind = {}) {
  jpeg_compress_struct encoder{};
  jpeg_error_mgr errors{};
  encoder.err = ::jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  unsigned char* file = nullptr;
  unsigned long size = 0;
  ::jpeg_mem_dest(&encoder, &file, &size);
  encoder.image_width = width;
  encoder.image_height = height;
  encoder.input_components = kind.channels;
  encoder.in_color_space = kind.colors;
  ::jpeg_set_defaults(&encoder);
  ::jpeg_set_quality(&encoder, 90, TRUE);
  if (kind.is_progressive) ::jpeg_simple_progression(&encoder);
  // The same coefficients a bit at a time, as a bomb has them.
  std::vector<jpeg_scan_info> scans;
  if (kind.scans > 0) {
    for (int component = 0; component < 3; ++component) {
      scans.push_back({1, {component, 0, 0, 0}, 0, 0, 0, 0});
    }
    for (int i = 0; i + 3 < kind.scans; ++i) {
      const int band = 1 + i % 63;
      scans.push_back({1, {(i / 63) % 3, 0, 0, 0}, band, band, 0, 0});
    }
    encoder.scan_info = scans.data();
    encoder.num_scans = static_cast<int>(scans.size());
  }
  ::jpeg_start_compress(&encoder, TRUE);
  const size_t row_bytes = size_t{width} * static_cast<size_t>(kind.channels);
  while (encoder.next_scanline < height) {
    auto* row = const_cast<JSAMPROW>(pixels.data() + encoder.next_scanline * row_bytes);
    ::jpeg_write_scanlines(&encoder, &row, 1);
  }
  ::jpeg_finish_compress(&encoder);
  ::jpeg_destroy_compress(&encoder);
  const auto* const begin = reinterpret_cast<const std::byte*>(file);
  Bytes bytes(begin, begin + size);
  std::free(file);
  return bytes;
}

}  // namespace lumen::test
