// RowTaker: takes the rows of a decoder, which are red, green and blue, to the wanted picture.
// Threads: one. Memory: the heap. Errors: Status.
#pragma once

#include <lumen/base/result.h>
#include <lumen/pictures/decode.h>

#include <optional>
#include <span>
#include <vector>

namespace lumen::pictures {

inline constexpr uint32_t kDecodedChannels = 3;

class RowTaker {
 public:
  RowTaker(const Wanted& wanted, std::span<uint8_t> out) noexcept : wanted_(wanted), out_(out) {}

  // Before the first row: whether a picture of this size is taken; refusal() says why not. `kind`:
  // "JPEG", for messages.
  [[nodiscard]] bool begin(const char* kind, uint64_t height, uint64_t width);
  [[nodiscard]] const Status& refusal() const noexcept { return refusal_; }
  // Where the decoder writes the next row.
  [[nodiscard]] std::span<uint8_t> row() noexcept { return row_; }
  void take(const uint8_t* row) noexcept;
  void take() noexcept { take(row_.data()); }
  void end() noexcept { resizer_->write(out_); }
  [[nodiscard]] uint32_t most_pixels() const noexcept { return wanted_.most_pixels; }

 private:
  const Wanted& wanted_;
  const std::span<uint8_t> out_;
  Status refusal_;
  std::optional<Resizer> resizer_;
  std::vector<uint8_t> row_;
  std::vector<uint8_t> grey_;
};

[[nodiscard]] Status decode_jpeg(std::span<const std::byte> file, RowTaker& rows);
[[nodiscard]] Status decode_png(std::span<const std::byte> file, RowTaker& rows);

}  // namespace lumen::pictures
