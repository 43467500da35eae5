// See the header.
#include <lumen/client/input_variants.h>

#include <algorithm>
#include <cstring>

namespace lumen::client {
namespace {

// So many bits that a run does not come upon the same values twice.
constexpr size_t kBits = 64;

// The bits that one element takes of them; 0: its values stay. As random_input() has it: integers
// of 0 to 7.
size_t bits_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::kFp64: return 52;
    case ElementType::kFp32: return 23;
    case ElementType::kFp16: return 10;
    case ElementType::kBf16: return 7;
    case ElementType::kBool: return 1;
    case ElementType::kBytes: return 0;
    default: return 3;
  }
}

bool is_float(ElementType type) noexcept { return bits_of(type) > 3; }

// Scrambles a number so that neighbours have nothing in common (SplitMix64's finaliser).
uint64_t mixed(uint64_t value) noexcept {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return value ^ value >> 31;
}

template <typename T>
void put(char* to, T value) noexcept {
  std::memcpy(to, &value, sizeof(T));
}

// Floats in [0.5, 1): a random mantissa under one exponent.
void put_element(char* to, ElementType type, uint64_t bits) noexcept {
  switch (type) {
    case ElementType::kFp64: return put(to, 0x3fe0000000000000u | bits >> 12);
    case ElementType::kFp32: return put(to, 0x3f000000u | static_cast<uint32_t>(bits >> 41));
    case ElementType::kFp16: return put(to, static_cast<uint16_t>(0x3800u | bits >> 54));
    case ElementType::kBf16: return put(to, static_cast<uint16_t>(0x3f00u | bits >> 57));
    case ElementType::kBool: *to = static_cast<char>(bits >> 63); return;
    default: break;
  }
  std::memset(to, 0, element_size(type));
  *to = static_cast<char>(bits >> 61);
}

}  // namespace

Result<InputVariants> InputVariants::create(const std::vector<InputTensor>& inputs) {
  InputVariants variants;
  bool found = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t bits = bits_of(inputs[i].type);
    const size_t wanted = bits == 0 ? SIZE_MAX : (kBits + bits - 1) / bits;
    const size_t element = std::max<size_t>(element_size(inputs[i].type), 1);
    const size_t elements = bits == 0 ? 0 : inputs[i].bytes.size() / element;
    const bool is_better = !found || (is_float(inputs[i].type) && !is_float(variants.type_));
    if (elements >= wanted && is_better) {
      found = true;
      variants.input_ = i;
      variants.type_ = inputs[i].type;
      variants.elements_ = wanted;
    }
  }
  if (found) return variants;
  return Status::error(Code::kInvalidArgument,
                       "--repeat-ratio: no input has enough numbers for a fresh one each time; "
                       "wanted 3 of FP32, 22 integers, or more by --input FILE.npy");
}

void InputVariants::write(uint64_t number, char* bytes) const noexcept {
  const size_t size = element_size(type_);
  uint64_t state = mixed(number + 1);
  for (size_t i = 0; i < elements_; ++i) {
    state += 0x9e3779b97f4a7c15u;
    put_element(bytes + i * size, type_, mixed(state));
  }
}

uint64_t VariantChooser::some_first() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

uint64_t VariantChooser::next() noexcept {
  // 53 bits, as a double holds them.
  const double chance = static_cast<double>(random_() >> 11) * 0x1p-53;
  if (sent_ > 0 && chance < ratio_) {
    return next_ - 1 - random_() % std::min(sent_, kRemembered);
  }
  ++sent_;
  return next_++;
}

}  // namespace lumen::client
