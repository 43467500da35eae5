// See the header for threads, memory and errors.
#include "answers/fingerprint.h"

#include <lumen/models/model_repository.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace lumen::answers {
namespace {

constexpr size_t kAlignment = alignof(Hash128);

// Once to count the bytes, once to write them. Texts and lists have their length before them, so
// that no two requests look alike.
class StructureWriter {
 public:
  explicit StructureWriter(std::byte* out) noexcept : out_(out) {}

  template <typename T>
  void put(T value) noexcept {
    static_assert(std::is_integral_v<T>);
    put_bytes(&value, sizeof(T));
  }
  void put_text(std::string_view text) noexcept {
    put(static_cast<uint32_t>(text.size()));
    put_bytes(text.data(), text.size());
  }
  [[nodiscard]] size_t size() const noexcept { return size_; }

 private:
  void put_bytes(const void* bytes, size_t size) noexcept {
    if (out_ != nullptr && size > 0) std::memcpy(out_ + size_, bytes, size);
    size_ += size;
  }

  std::byte* out_;  // nullptr: only counts
  size_t size_ = 0;
};

void put_structure(StructureWriter& out, const service::Call& call, uint64_t generation) noexcept {
  const models::InferRequest& infer = call.infer;
  const models::ModelMetadata& model = infer.model->metadata();
  out.put(generation);
  out.put_text(model.name);
  out.put_text(model.version);
  out.put(static_cast<uint32_t>(infer.inputs.size()));
  for (size_t i = 0; i < infer.inputs.size(); ++i) {
    const TensorView& input = infer.inputs[i];
    out.put_text(model.inputs[i].name);
    out.put(static_cast<uint8_t>(input.type));
    out.put(static_cast<uint8_t>(input.shape.rank()));
    for (const int64_t dimension : input.shape.dimensions()) out.put(dimension);
    out.put(static_cast<uint64_t>(input.byte_size));
  }
  // None named is all of them, in the model's order.
  const bool wants_all = infer.outputs_wanted.empty();
  const size_t outputs = wants_all ? model.outputs.size() : infer.outputs_wanted.size();
  out.put(static_cast<uint32_t>(outputs));
  for (size_t i = 0; i < outputs; ++i) {
    out.put(wants_all ? static_cast<uint16_t>(i) : infer.outputs_wanted[i]);
  }
  out.put(static_cast<uint32_t>(call.cache_wishes.parameters.size()));
  for (const wire::InferParameter& parameter : call.cache_wishes.parameters) {
    out.put_text(parameter.of);
    out.put_text(parameter.name);
    out.put_text(parameter.value);
  }
}

}  // namespace

std::optional<Fingerprint> Fingerprint::of(const service::Call& call, uint64_t generation,
                                           const KeyedHash& hash) noexcept {
  std::ranges::sort(call.cache_wishes.parameters, {}, [](const wire::InferParameter& parameter) {
    return std::tie(parameter.of, parameter.name);
  });
  const std::span<const TensorView> inputs = call.infer.inputs;
  StructureWriter counted(nullptr);
  put_structure(counted, call, generation);
  const size_t structure = (counted.size() + kAlignment - 1) / kAlignment * kAlignment;
  const size_t hashes = inputs.size() * sizeof(Hash128);
  auto* const bytes =
      static_cast<std::byte*>(call.scratch->allocate(structure + 2 * hashes, kAlignment));
  const std::span<bool> has_second = call.scratch->allocate_array<bool>(inputs.size());
  if (bytes == nullptr || has_second.size() != inputs.size()) return std::nullopt;
  std::memset(bytes + hashes + counted.size(), 0, structure - counted.size());
  StructureWriter writer(bytes + hashes);
  put_structure(writer, call, generation);
  Fingerprint print({bytes, structure + 2 * hashes}, has_second);
  for (size_t i = 0; i < inputs.size(); ++i) {
    print.first_hashes()[i] = hash.xxh3(inputs[i].bytes());
  }
  print.key_ = hash.xxh3(print.bytes_.first(hashes + structure));
  return print;
}

Hash128* Fingerprint::first_hashes() const noexcept {
  return reinterpret_cast<Hash128*>(bytes_.data());
}

Hash128* Fingerprint::second_hashes() const noexcept {
  return reinterpret_cast<Hash128*>(bytes_.data() + bytes_.size()) - inputs_;
}

const Hash128& Fingerprint::second(const service::Call& call, size_t input,
                                   const KeyedHash& hash) noexcept {
  Hash128& second = second_hashes()[input];
  if (!has_second_[input]) second = hash.highway(call.infer.inputs[input].bytes());
  has_second_[input] = true;
  return second;
}

HashPair Fingerprint::pair(const service::Call& call, const KeyedHash& hash) noexcept {
  for (size_t i = 0; i < inputs_; ++i) (void)second(call, i, hash);
  return {key_, hash.highway(bytes_.subspan(inputs_ * sizeof(Hash128)))};
}

}  // namespace lumen::answers
