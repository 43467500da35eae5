// InputVariants: the same inputs over and over with other values, by number, for `--repeat-ratio`:
// a number always means the same values, and two numbers hardly ever do.
// VariantChooser: which number the next request has: one sent before, or a fresh one.
// Threads: InputVariants is read by all; a VariantChooser belongs to one. Memory: none after they
// are made.
// Errors: Status where the inputs have too few values to be told apart.
#pragma once

#include <lumen/client/model_info.h>

#include <lumen/base/result.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace lumen::client {

class InputVariants {
 public:
  // Of the inputs, the one whose values change: the first of floats, else the first that has
  // enough.
  [[nodiscard]] static Result<InputVariants> create(const std::vector<InputTensor>& inputs);

  [[nodiscard]] size_t input() const noexcept { return input_; }
  // Writes the values of `number` over the first of that input's.
  void write(uint64_t number, char* bytes) const noexcept;

 private:
  size_t input_ = 0;
  ElementType type_{};
  size_t elements_ = 0;  // that change
};

class VariantChooser {
 public:
  // `ratio` of the requests repeat one of the last that were fresh; fresh ones count from `first`
  // on.
  VariantChooser(double ratio, uint64_t first) noexcept
      : ratio_(ratio), random_(first), next_(first) {}
  // By chance: the variants of an earlier run are in the server's cache.
  [[nodiscard]] static uint64_t some_first();
  [[nodiscard]] uint64_t next() noexcept;

 private:
  // Few enough that a cache of a few MiB holds them all: the bench measures hits, not the cache's
  // size.
  static constexpr uint64_t kRemembered = 64;

  double ratio_;
  std::mt19937_64 random_;
  uint64_t next_;
  uint64_t sent_ = 0;
};

}  // namespace lumen::client
