// See the header for threads, memory and errors.
#include "answers/stored_answer.h"

#include <lumen/base/cache_line.h>

#include "answers/block_region.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace lumen::answers {

// Where each part lies: the same for counting, and for writing.
class StoredAnswer::Layout {
 public:
  Layout(const service::Call& call, const Fingerprint& print) noexcept {
    (void)take(sizeof(StoredAnswer), 1);
    inputs_at = take(call.infer.inputs.size() * sizeof(StoredInput), alignof(StoredInput));
    outputs_at = take(call.infer.outputs.size() * sizeof(TensorView), alignof(TensorView));
    structure_at = take(print.structure().size(), 1);
  }
  // Tensors begin where those of a run do: at lines of the cache.
  [[nodiscard]] uint64_t take_tensor(uint64_t bytes) noexcept {
    constexpr uint64_t kLead = BlockRegion::kHeaderBytes;
    size_ = (size_ + kLead + kCacheLine - 1) / kCacheLine * kCacheLine - kLead;
    return take(bytes, 1);
  }
  [[nodiscard]] uint64_t take(uint64_t bytes, uint64_t alignment) noexcept {
    const uint64_t at = (size_ + alignment - 1) / alignment * alignment;
    size_ = at + bytes;
    return at;
  }
  [[nodiscard]] uint64_t size() const noexcept { return size_; }

  uint64_t inputs_at;
  uint64_t outputs_at;
  uint64_t structure_at;

 private:
  uint64_t size_ = 0;
};

uint64_t StoredAnswer::bytes_for(const service::Call& call, const Fingerprint& print) noexcept {
  Layout layout(call, print);
  for (const TensorView& input : call.infer.inputs) {
    if (input.byte_size <= kComparedBytes) (void)layout.take(input.byte_size, 1);
  }
  for (const TensorView& output : call.infer.outputs) (void)layout.take_tensor(output.byte_size);
  return layout.size();
}

void StoredAnswer::write(std::byte* at, const service::Call& call, Fingerprint& print,
                         const KeyedHash& hash, uint64_t now_ns) noexcept {
  const auto copy = [at](uint64_t to, std::span<const std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(at + to, bytes.data(), bytes.size());
  };
  Layout layout(call, print);
  auto& answer = *::new (static_cast<void*>(at)) StoredAnswer;
  answer.stored_ns_ = now_ns;
  answer.inputs_ = static_cast<uint32_t>(call.infer.inputs.size());
  answer.outputs_ = static_cast<uint32_t>(call.infer.outputs.size());
  answer.structure_at_ = static_cast<uint32_t>(layout.structure_at);
  answer.structure_bytes_ = static_cast<uint32_t>(print.structure().size());
  copy(layout.structure_at, print.structure());
  auto* const inputs = reinterpret_cast<StoredInput*>(at + layout.inputs_at);
  for (size_t i = 0; i < call.infer.inputs.size(); ++i) {
    const TensorView& input = call.infer.inputs[i];
    StoredInput& stored = *::new (static_cast<void*>(inputs + i)) StoredInput{};
    if (input.byte_size <= kComparedBytes) {
      stored.bytes_at = layout.take(input.byte_size, 1);
      copy(stored.bytes_at, input.bytes());
    } else {
      stored.second = print.second(call, i, hash);
    }
  }
  auto* const outputs = reinterpret_cast<TensorView*>(at + layout.outputs_at);
  for (size_t i = 0; i < call.infer.outputs.size(); ++i) {
    TensorView& stored = *::new (static_cast<void*>(outputs + i)) TensorView(call.infer.outputs[i]);
    const uint64_t place = layout.take_tensor(stored.byte_size);
    copy(place, stored.bytes());
    stored.data = at + place;
  }
}

std::span<const StoredAnswer::StoredInput> StoredAnswer::inputs() const noexcept {
  return {reinterpret_cast<const StoredInput*>(base() + sizeof(StoredAnswer)), inputs_};
}

std::span<const TensorView> StoredAnswer::outputs() const noexcept {
  const auto* begin = base() + sizeof(StoredAnswer) + inputs_ * sizeof(StoredInput);
  static_assert(sizeof(StoredAnswer) % alignof(StoredInput) == 0 &&
                alignof(StoredInput) == alignof(TensorView));
  return {reinterpret_cast<const TensorView*>(begin), outputs_};
}

bool StoredAnswer::answers(const service::Call& call, Fingerprint& print,
                           const KeyedHash& hash) const noexcept {
  const std::span<const std::byte> structure = print.structure();
  if (structure.size() != structure_bytes_ ||
      std::memcmp(base() + structure_at_, structure.data(), structure.size()) != 0) {
    return false;
  }
  // The structure holds how many inputs there are, and the size of each.
  for (size_t i = 0; i < inputs_; ++i) {
    const TensorView& input = call.infer.inputs[i];
    const StoredInput& stored = inputs()[i];
    if (input.byte_size == 0) continue;
    const bool is_same =
        input.byte_size <= kComparedBytes
            ? std::memcmp(base() + stored.bytes_at, input.data, input.byte_size) == 0
            : stored.second == print.second(call, i, hash);
    if (!is_same) return false;
  }
  return true;
}

}  // namespace lumen::answers
