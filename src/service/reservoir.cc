// See the header for threads, memory and errors.
#include "service/reservoir.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace lumen::service {
namespace {

// As the binder's places: rows are copied in whole cache lines.
constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) noexcept { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
uint64_t mixed(uint64_t value) noexcept {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// Clients must not be able to choose which of their rows are kept.
uint64_t random_seed() noexcept {
  uint64_t seed = 0;
  // It fails in no kernel that we run on; a seed of 0 would still be a sample.
  (void)::getrandom(&seed, sizeof seed, 0);
  return seed;
}

}  // namespace

bool Reservoir::divides(const models::Model& model) noexcept {
  return models::has_batch_axis(model.metadata()) && model.why_not_packed().empty();
}

size_t Reservoir::slot_bytes_for(std::span<const size_t> data_bytes) noexcept {
  return std::accumulate(data_bytes.begin(), data_bytes.end(),
                         aligned(data_bytes.size() * sizeof(Part)),
                         [](size_t sum, size_t bytes) { return sum + aligned(bytes); });
}

Result<std::unique_ptr<Reservoir>> Reservoir::create(std::shared_ptr<models::Model> model,
                                                     uint32_t rows, size_t slot_bytes) {
  // Touched now: a page fault would be a request's delay.
  Result<Mapping> memory = Mapping::create(rows * slot_bytes, {.prefault = true});
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<Reservoir>(
      new Reservoir(std::move(model), rows, slot_bytes, std::move(*memory)));
}

Reservoir::Reservoir(std::shared_ptr<models::Model> model, uint32_t rows, size_t slot_bytes,
                     Mapping memory)
    : model_(std::move(model)),
      is_divided_(divides(*model_)),
      rows_(rows),
      slot_bytes_(slot_bytes),
      seed_(random_seed()),
      memory_(std::move(memory)),
      slots_(std::make_unique<Slot[]>(rows)) {}

uint32_t Reservoir::rows_in(const models::InferRequest& request) const noexcept {
  return is_divided_ ? models::rows_of(request) : 1;
}

void Reservoir::take(const models::InferRequest& request) noexcept {
  const uint32_t rows = rows_in(request);
  if (rows == 0) {  // empty, or inputs with different numbers of rows
    left_out_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a figure
    return;
  }
  size_t needed = aligned(request.inputs.size() * sizeof(Part));
  for (const TensorView& input : request.inputs) needed += aligned(input.byte_size / rows);
  if (needed > slot_bytes_) {
    left_out_.fetch_add(rows, std::memory_order_relaxed);  // relaxed: a figure
    return;
  }
  // relaxed: each number is given out once, and nothing is published by it
  const uint64_t first = seen_.fetch_add(rows, std::memory_order_relaxed);
  for (uint32_t row = 0; row < rows; ++row) {
    const uint64_t number = first + row;
    const uint64_t slot = number < rows_ ? number : mixed(seed_ ^ number) % (number + 1);
    if (slot < rows_) write(static_cast<uint32_t>(slot), request, row, rows);
  }
}

void Reservoir::write(uint32_t index, const models::InferRequest& request, uint32_t row,
                      uint32_t rows) noexcept {
  Slot& slot = slots_[index];
  // The row of the thread that is writing there stays: either is a fair choice.
  // sync[reservoir.slot]: acquire; the writes of the thread that had it before
  if (slot.is_taken.exchange(true, std::memory_order_acquire)) return;
  auto* part = reinterpret_cast<Part*>(at(index));
  std::byte* data = at(index) + aligned(request.inputs.size() * sizeof(Part));
  for (const TensorView& input : request.inputs) {
    const size_t bytes = input.byte_size / rows;
    *part = {input.shape, bytes};
    if (is_divided_) part->shape[0] = 1;
    if (bytes > 0) std::memcpy(data, input.data + size_t{row} * bytes, bytes);
    data += aligned(bytes);
    ++part;
  }
  if (!std::exchange(slot.has_row, true)) {
    kept_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a figure
  }
  // sync[reservoir.slot]: release; the row
  slot.is_taken.store(false, std::memory_order_release);
}

std::vector<TensorView> Reservoir::row(uint32_t number) const {
  uint32_t index = 0;
  for (;; ++index) {
    if (index == rows_) return {};
    if (slots_[index].has_row && number-- == 0) break;
  }
  const auto& specs = model_->metadata().inputs;
  const auto* part = reinterpret_cast<const Part*>(at(index));
  std::byte* data = at(index) + aligned(specs.size() * sizeof(Part));
  std::vector<TensorView> row;
  for (const models::TensorSpec& spec : specs) {
    row.push_back({spec.type, part->shape, data, part->bytes});
    data += aligned(part->bytes);
    ++part;
  }
  return row;
}

}  // namespace lumen::service
