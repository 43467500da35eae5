// Reads a JPEG or PNG file into pixels of a model's size: libjpeg-turbo, libspng and the Resizer.
// The pixels are those that Pillow gives: open(), convert("RGB" or "L"), resize(). An orientation
// in Exif data, an alpha channel and a colour profile are not applied.
// Threads: any. Memory: the heap, freed at the end: rows and the Resizer's; of a progressive JPEG
// or an interlaced PNG 6 or 3 bytes for each pixel of the file.
// Errors: a Status whose text follows a name of the picture: "is a JPEG of 9000 x 9000, ...".
#pragma once

#include <lumen/base/result.h>
#include <lumen/pictures/resize.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace lumen::pictures {

struct Wanted {
  Fit fit;
  uint32_t channels = 3;     // 3: red, green, blue; 1: grey
  uint32_t most_pixels = 0;  // of the file; more are refused by its head
};

// `out`: height x width x channels bytes, interleaved, from the top.
[[nodiscard]] Status decode(std::span<const std::byte> file, const Wanted& wanted,
                            std::span<uint8_t> out) noexcept;

}  // namespace lumen::pictures
