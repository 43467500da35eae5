// See the header.
#include <lumen/pictures/resize.h>

#include <lumen/base/check.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace lumen::pictures {
namespace {

// 32 bits hold 8 of a value, 2 for sums beyond 255 (a bicubic filter has negative parts), these.
constexpr int kFactorBits = 22;
constexpr int32_t kHalf = 1 << (kFactorBits - 1);

double bilinear(double x) noexcept { return std::max(0.0, 1.0 - std::abs(x)); }

// Keys' cubic convolution, a = -0.5.
double bicubic(double x) noexcept {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * kA;
  return 0.0;
}

uint8_t to_byte(int32_t sum) noexcept {
  return static_cast<uint8_t>(std::clamp(sum >> kFactorBits, 0, 255));
}

// As Pillow 13 chooses: the height first where it loses more than twice as many places as the
// width. Older versions began with the width always, which changes some values by 1.
bool is_height_first(Size from, Size to) noexcept {
  const int64_t height_lost = int64_t{from.height} - int64_t{to.height};
  const int64_t width_lost = int64_t{from.width} - int64_t{to.width};
  return height_lost > 0 && height_lost > 2 * width_lost;
}

// Python's round() of half of `difference`: a half goes to the even number.
uint32_t half_of(uint32_t difference) noexcept {
  const uint32_t half = difference / 2;
  return difference % 2 == 0 || half % 2 == 0 ? half : half + 1;
}

}  // namespace

Resizer::Weights Resizer::weights(uint32_t from, uint32_t to, uint32_t begin, uint32_t end,
                                  Filter filter) {
  const double scale = static_cast<double>(from) / to;
  const double widening = std::max(scale, 1.0);
  const double support = (filter == Filter::kBilinear ? 1.0 : 2.0) * widening;
  const double inverse = 1.0 / widening;
  Weights all;
  std::vector<double> parts;
  for (uint32_t place = begin; place < end; ++place) {
    const double center = (place + 0.5) * scale;
    const auto first = static_cast<uint32_t>(std::max(center - support + 0.5, 0.0));
    const auto last = static_cast<uint32_t>(std::min<double>(center + support + 0.5, from));
    parts.clear();
    double sum = 0;
    for (uint32_t i = first; i < last; ++i) {
      const double x = (i - center + 0.5) * inverse;
      parts.push_back(filter == Filter::kBilinear ? bilinear(x) : bicubic(x));
      sum += parts.back();
    }
    all.windows.push_back({first, last - first, all.factors.size()});
    for (const double part : parts) {
      const double factor = (sum != 0 ? part / sum : part) * (1 << kFactorBits);
      all.factors.push_back(static_cast<int32_t>(factor + (factor < 0 ? -0.5 : 0.5)));
    }
  }
  return all;
}

Result<Resizer> Resizer::create(Size from, const Fit& fit, uint32_t channels) {
  LUMEN_CHECK(from.height > 0 && from.width > 0 && (channels == 1 || channels == 3));
  Size whole = fit.size;
  if (fit.shorter_side != 0) {
    const uint32_t shorter = std::min(from.height, from.width);
    const auto longer_of = [&](uint32_t side) {
      return static_cast<uint32_t>(uint64_t{fit.shorter_side} * side / shorter);
    };
    whole = {longer_of(from.height), longer_of(from.width)};
    if (std::max(whole.height, whole.width) > kMostSide) {
      return Status::error(
          Code::kTooLarge,
          "is a picture of %u x %u, which is too narrow: resized to a shorter side "
          "of %u its longer one is more than %u",
          from.width, from.height, fit.shorter_side, kMostSide);
    }
    LUMEN_CHECK(whole.height >= fit.size.height && whole.width >= fit.size.width);
  }
  const uint32_t top = half_of(whole.height - fit.size.height);
  const uint32_t left = half_of(whole.width - fit.size.width);
  Resizer resizer;
  resizer.channels_ = channels;
  resizer.columns_ = weights(from.width, whole.width, left, left + fit.size.width, fit.filter);
  resizer.rows_ = weights(from.height, whole.height, top, top + fit.size.height, fit.filter);
  resizer.is_height_first_ = is_height_first(from, whole);
  resizer.sums_of_row_ = size_t{resizer.is_height_first_ ? from.width : fit.size.width} * channels;
  resizer.row_.resize(resizer.sums_of_row_);
  resizer.sums_.assign(resizer.sums_of_row_ * fit.size.height, kHalf);
  return resizer;
}

template <uint32_t kChannels>
void Resizer::resize_row(const uint8_t* row, uint8_t* out) const noexcept {
  for (const Weights::Window& window : columns_.windows) {
    const int32_t* const factors = columns_.factors.data() + window.offset;
    const uint8_t* pixel = row + size_t{window.first} * kChannels;
    std::array<int32_t, kChannels> sums;
    sums.fill(kHalf);
    for (uint32_t i = 0; i < window.count; ++i, pixel += kChannels) {
      for (uint32_t channel = 0; channel < kChannels; ++channel) {
        sums[channel] += factors[i] * pixel[channel];
      }
    }
    for (const int32_t sum : sums) *out++ = to_byte(sum);
  }
}

void Resizer::resize_row(const uint8_t* row, uint8_t* out) const noexcept {
  channels_ == 1 ? resize_row<1>(row, out) : resize_row<3>(row, out);
}

void Resizer::add_to_sums(const uint8_t* row, uint32_t number) noexcept {
  for (size_t place = first_open_; place < rows_.windows.size(); ++place) {
    const Weights::Window& window = rows_.windows[place];
    if (number < window.first) break;
    if (number >= window.first + window.count) continue;
    const int32_t factor = rows_.factors[window.offset + (number - window.first)];
    int32_t* const sums = sums_.data() + place * sums_of_row_;
    for (size_t i = 0; i < sums_of_row_; ++i) sums[i] += factor * row[i];
  }
}

void Resizer::add_row(const uint8_t* row) noexcept {
  const uint32_t number = next_row_++;
  const auto is_over = [number](const Weights::Window& window) {
    return number >= window.first + window.count;
  };
  while (first_open_ < rows_.windows.size() && is_over(rows_.windows[first_open_])) ++first_open_;
  if (first_open_ == rows_.windows.size() || number < rows_.windows[first_open_].first) return;
  if (!is_height_first_) {
    resize_row(row, row_.data());
    row = row_.data();
  }
  add_to_sums(row, number);
}

void Resizer::write(std::span<uint8_t> out) noexcept {
  LUMEN_CHECK(out.size() == rows_.windows.size() * columns_.windows.size() * channels_);
  if (!is_height_first_) {
    std::ranges::transform(sums_, out.begin(), to_byte);
    return;
  }
  uint8_t* to = out.data();
  for (size_t place = 0; place < rows_.windows.size();
       ++place, to += out.size() / rows_.windows.size()) {
    const std::span<const int32_t> sums(sums_.data() + place * sums_of_row_, sums_of_row_);
    std::ranges::transform(sums, row_.begin(), to_byte);
    resize_row(row_.data(), to);
  }
}

}  // namespace lumen::pictures
