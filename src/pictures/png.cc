// PNG by libspng. A damaged file is refused: a checksum that is wrong, rows that are missing.
#include "pictures/row_taker.h"

#include <spng.h>

#include <memory>
#include <vector>

namespace lumen::pictures {
namespace {

// Of a chunk that is not pixels (a text, a colour profile), and of all that are kept. Pixels are
// decoded row by row, however large their chunks are.
constexpr size_t kMostChunkBytes = size_t{1} << 20;
constexpr size_t kMostKeptBytes = size_t{4} << 20;

struct Free {
  void operator()(spng_ctx* context) const noexcept { ::spng_ctx_free(context); }
};

Status damaged(int error) {
  const Code code = error == SPNG_EMEM ? Code::kResourceExhausted : Code::kInvalidArgument;
  return Status::error(code, "is a PNG that can't be decoded: %s", ::spng_strerror(error));
}

Status take_rows(spng_ctx* context, RowTaker& rows) {
  int error = ::spng_decode_image(context, nullptr, 0, SPNG_FMT_RGB8, SPNG_DECODE_PROGRESSIVE);
  while (error == 0) {
    error = ::spng_decode_row(context, rows.row().data(), rows.row().size());
    if (error == 0 || error == SPNG_EOI) rows.take();  // the last row comes with SPNG_EOI
  }
  return error == SPNG_EOI ? Status() : damaged(error);
}

// Its rows come in no order.
Status take_interlaced(spng_ctx* context, uint32_t height, RowTaker& rows) {
  const size_t row_bytes = rows.row().size();
  std::vector<uint8_t> pixels(row_bytes * height);
  const int error = ::spng_decode_image(context, pixels.data(), pixels.size(), SPNG_FMT_RGB8, 0);
  if (error != 0) return damaged(error);
  for (uint32_t row = 0; row < height; ++row) rows.take(pixels.data() + row * row_bytes);
  return {};
}

}  // namespace

Status decode_png(std::span<const std::byte> file, RowTaker& rows) {
  const std::unique_ptr<spng_ctx, Free> context(::spng_ctx_new(0));
  if (context == nullptr) return damaged(SPNG_EMEM);
  ::spng_set_chunk_limits(context.get(), kMostChunkBytes, kMostKeptBytes);
  int error = ::spng_set_png_buffer(context.get(), file.data(), file.size());
  spng_ihdr head{};
  if (error == 0) error = ::spng_get_ihdr(context.get(), &head);
  if (error != 0) return damaged(error);
  if (!rows.begin("PNG", head.height, head.width)) return rows.refusal();
  const Status status = head.interlace_method == SPNG_INTERLACE_NONE
                            ? take_rows(context.get(), rows)
                            : take_interlaced(context.get(), head.height, rows);
  if (status.ok()) rows.end();
  return status;
}

}  // namespace lumen::pictures
