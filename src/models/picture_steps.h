// The steps from an input of pictures to the tensor that the model within takes.
// Threads: any. Memory: `memory`, and the decoder's own. Errors: a Status that names the input.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/result.h>
#include <lumen/models/pictures.h>
#include <lumen/tensor/tensor_view.h>

#include <array>
#include <string>
#include <vector>

namespace lumen::models {

// (pixel - mean) / scale of each value that a pixel has, for each channel of pixels.
class PixelNumbers {
 public:
  explicit PixelNumbers(const PictureInput& picture);
  // Of `pictures` pictures; `out` has as many numbers as `pixels` has bytes.
  void convert(const std::byte* pixels, size_t pictures, float* out) const noexcept;

 private:
  std::vector<std::array<float, 256>> of_channel_;
  size_t places_;  // of a picture
  bool is_bgr_;
  bool has_channels_first_;
};

// The input with pixels of the model's size: it itself, or in `memory`.
[[nodiscard]] Result<TensorView> to_pixels(const PictureInput& picture, const std::string& name,
                                           const TensorView& input, Allocator& memory) noexcept;

// The input with the model's numbers, in `memory`.
[[nodiscard]] Result<TensorView> to_numbers(const PictureInput& picture, const std::string& name,
                                            const PixelNumbers& numbers, const TensorView& pixels,
                                            Allocator& memory) noexcept;

}  // namespace lumen::models
