// JPEG by libjpeg-turbo. A damaged file is refused, where the library would go on with pixels that
// it made up.
#include "pictures/row_taker.h"

#include <cstdio>  // jpeglib.h needs it first
#include <cstring>

#include <jpeglib.h>

#include <jerror.h>

#include <csetjmp>

namespace lumen::pictures {
namespace {

// Each scan of a progressive file goes over the whole picture; encoders make about ten. So many
// for a picture of the most pixels, more for smaller ones.
constexpr uint64_t kMostScans = 16;
// Of a progressive file's coefficients, two bytes for each value, and of all else together.
constexpr long kBytesOfAPixel = 8;
constexpr long kOtherBytes = 8L << 20;

// The library's structures with ours behind them: it passes pointers to its part.
struct Decoder {
  Decoder() noexcept = default;
  ~Decoder() { ::jpeg_destroy_decompress(&library); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  jpeg_decompress_struct library{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  jmp_buf failed{};
  uint64_t most_scanned_pixels = 0;
  char reason[JMSG_LENGTH_MAX] = {};
};

Decoder& decoder_of(j_common_ptr library) noexcept {
  return *static_cast<Decoder*>(library->client_data);
}

[[noreturn]] void fail(j_common_ptr library) {
  Decoder& decoder = decoder_of(library);
  (*library->err->format_message)(library, decoder.reason);
  std::longjmp(decoder.failed, 1);  // NOLINT(cert-err52-cpp): the library knows no other way
}

// Of the library's warnings those after which pixels are made up.
void on_message(j_common_ptr library, int level) {
  if (level >= 0) return;
  switch (library->err->msg_code) {
    case JWRN_ARITH_BAD_CODE:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC: fail(library);
    default: return;  // bytes between markers, a version that is not known
  }
}

void on_progress(j_common_ptr library) {
  Decoder& decoder = decoder_of(library);
  const auto scans = static_cast<uint64_t>(decoder.library.input_scan_number);
  const uint64_t pixels = uint64_t{decoder.library.image_height} * decoder.library.image_width;
  if (scans * pixels <= decoder.most_scanned_pixels) return;
  std::snprintf(decoder.reason, sizeof(decoder.reason), "it has more than %llu scans",
                static_cast<unsigned long long>(decoder.most_scanned_pixels / pixels));
  std::longjmp(decoder.failed, 1);  // NOLINT(cert-err52-cpp): as above
}

void open(Decoder& decoder, std::span<const std::byte> file, uint64_t most_pixels) {
  decoder.library.err = ::jpeg_std_error(&decoder.errors);
  decoder.errors.error_exit = fail;
  decoder.errors.emit_message = on_message;
  decoder.library.client_data = &decoder;
  jpeg_create_decompress(&decoder.library);
  decoder.library.client_data = &decoder;
  decoder.library.mem->max_memory_to_use =
      static_cast<long>(most_pixels) * kBytesOfAPixel + kOtherBytes;
  decoder.progress.progress_monitor = on_progress;
  decoder.library.progress = &decoder.progress;
  decoder.most_scanned_pixels = most_pixels * kMostScans;
  ::jpeg_mem_src(&decoder.library, reinterpret_cast<const unsigned char*>(file.data()),
                 file.size());
}

enum class Outcome : uint8_t { kDone, kFailed, kOfPrint, kRefused };

// No object here, or in a function that it calls beside the library, has a destructor to run when
// the library fails.
Outcome run(Decoder& decoder, std::span<const std::byte> file, RowTaker& rows) {
  if (setjmp(decoder.failed) != 0) return Outcome::kFailed;  // NOLINT(cert-err52-cpp): as above
  open(decoder, file, rows.most_pixels());
  jpeg_decompress_struct& library = decoder.library;
  ::jpeg_read_header(&library, TRUE);
  if (library.jpeg_color_space == JCS_CMYK || library.jpeg_color_space == JCS_YCCK) {
    return Outcome::kOfPrint;
  }
  if (!rows.begin("JPEG", library.image_height, library.image_width)) return Outcome::kRefused;
  library.out_color_space = JCS_RGB;
  ::jpeg_start_decompress(&library);
  JSAMPROW row = rows.row().data();
  while (library.output_scanline < library.output_height) {
    ::jpeg_read_scanlines(&library, &row, 1);
    rows.take();
  }
  ::jpeg_finish_decompress(&library);
  return Outcome::kDone;
}

}  // namespace

Status decode_jpeg(std::span<const std::byte> file, RowTaker& rows) {
  Decoder decoder;
  switch (run(decoder, file, rows)) {
    case Outcome::kDone: rows.end(); return {};
    case Outcome::kRefused: return rows.refusal();
    case Outcome::kOfPrint:
      return Status::error(Code::kInvalidArgument,
                           "is a JPEG of the colours of print (CMYK), wanted RGB or grey");
    case Outcome::kFailed: break;
  }
  const bool no_memory = decoder.errors.msg_code == JERR_OUT_OF_MEMORY;
  return Status::error(no_memory ? Code::kResourceExhausted : Code::kInvalidArgument,
                       "is a JPEG that can't be decoded: %s", decoder.reason);
}

}  // namespace lumen::pictures
