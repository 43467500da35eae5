// Resizer: a picture of any size to one of a model's size, row by row, so that the whole picture is
// never in memory.
// Source of the algorithm: convolution with a filter that widens with the reduction, in fixed-point
// numbers of 22 bits, one axis after the other, rounded to 8 bits between: as Pillow's Image.resize
// does it for 8-bit pictures. The pixels are those of Pillow 13.
// Threads: one. Memory: the heap, in create(): 8 to 16 bytes for each column and row of the source,
// and 4 for each value of the result; where columns are resized first, 4 for each value of as many
// rows as the result has, as wide as the source. Errors: Status.
#pragma once

#include <lumen/base/result.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lumen::pictures {

struct Size {
  uint32_t height = 0;
  uint32_t width = 0;
  bool operator==(const Size&) const = default;
};

enum class Filter : uint8_t { kBilinear, kBicubic };

// How a picture becomes one of `size`.
struct Fit {
  Size size;
  // 0: it is stretched. Otherwise it is resized until its shorter side is this long (at least as
  // long as both sides of `size`), then its middle is taken: torchvision's Resize and CenterCrop.
  uint32_t shorter_side = 0;
  Filter filter = Filter::kBilinear;
  bool operator==(const Fit&) const = default;
};

class Resizer {
 public:
  // `from` has no side of 0. `channels`: values of a pixel, interleaved in rows: 1 or 3.
  // kTooLarge where the shorter side makes the longer one longer than kMostSide.
  [[nodiscard]] static Result<Resizer> create(Size from, const Fit& fit, uint32_t channels);

  // The next row, from the top; as many as `from` has.
  void add_row(const uint8_t* row) noexcept;
  // After the last row: the result, of height x width x channels bytes.
  void write(std::span<uint8_t> out) noexcept;

 private:
  // The part that the places of the source have in the places of the result, of one axis.
  struct Weights {
    struct Window {
      uint32_t first = 0;  // of the source
      uint32_t count = 0;
      size_t offset = 0;  // of its factors
    };
    std::vector<Window> windows;   // one for each place of the result
    std::vector<int32_t> factors;  // of 2^22
  };
  template <uint32_t kChannels>
  void resize_row(const uint8_t* row, uint8_t* out) const noexcept;
  void resize_row(const uint8_t* row, uint8_t* out) const noexcept;
  void add_to_sums(const uint8_t* row, uint32_t number) noexcept;
  static Weights weights(uint32_t from, uint32_t to, uint32_t begin, uint32_t end, Filter filter);

  uint32_t channels_ = 0;
  bool is_height_first_ = false;
  Weights columns_;
  Weights rows_;
  uint32_t next_row_ = 0;      // of the source
  size_t first_open_ = 0;      // the first row of the result that may take more
  std::vector<uint8_t> row_;   // between the two axes
  size_t sums_of_row_ = 0;     // as wide as the result, or as the source if height comes first
  std::vector<int32_t> sums_;  // of the rows of the result
};

// Longer sides are no pictures for a model; JPEG's own limit is near it.
inline constexpr uint32_t kMostSide = 65'535;

}  // namespace lumen::pictures
