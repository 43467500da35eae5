// See the header.
#include "models/sequence_inputs.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

namespace lumen::models {
namespace {

constexpr size_t kTensorAlignment = 64;

std::string_view id_of(const SequenceTurn* turn) noexcept {
  return turn != nullptr ? turn->text : std::string_view();
}

Result<TensorView> id_texts(TensorView tensor, const TurnsOfRun& turns, size_t rows,
                            Allocator& memory) noexcept {
  for (size_t row = 0; row < rows; ++row) {
    tensor.byte_size += sizeof(uint32_t) + id_of(turns[row]).size();
  }
  tensor.data = static_cast<std::byte*>(memory.allocate(tensor.byte_size, kTensorAlignment));
  if (tensor.data == nullptr) return no_room_for("the ids of sequences", tensor.byte_size);
  std::byte* to = tensor.data;
  for (size_t row = 0; row < rows; ++row) {
    const std::string_view id = id_of(turns[row]);
    const auto bytes = static_cast<uint32_t>(id.size());
    std::memcpy(to, &bytes, sizeof(bytes));
    std::ranges::copy(std::as_bytes(std::span(id)), to + sizeof(bytes));
    to += sizeof(bytes) + bytes;
  }
  return tensor;
}

bool is_set(ControlOptions::Kind kind, const SequenceTurn* turn) noexcept {
  switch (kind) {
    // Of no sequence, a row has the states of a beginning.
    case ControlOptions::Kind::kStart: return turn == nullptr || turn->starts;
    case ControlOptions::Kind::kEnd: return turn != nullptr && turn->ends;
    case ControlOptions::Kind::kReady: return turn != nullptr;
    case ControlOptions::Kind::kId: break;
  }
  return false;
}

void write_element(const ControlTensor& control, const SequenceTurn* turn, std::byte* to) noexcept {
  const size_t bytes = element_size(control.type);
  if (control.kind == ControlOptions::Kind::kId) {
    // Little-endian: the lower half is a number of 32 bits, and larger ones are refused before.
    const uint64_t number = turn != nullptr ? turn->number : 0;
    std::memcpy(to, &number, bytes);
    return;
  }
  const auto& value = is_set(control.kind, turn) ? control.bytes_if_true : control.bytes_if_false;
  std::memcpy(to, value.data(), bytes);
}

}  // namespace

Status no_room_for(const char* part, size_t bytes) noexcept {
  return Status::error(Code::kTooLarge,
                       "%s of %zu bytes does not fit a request's memory; raise --max-body-bytes",
                       part, bytes);
}

Result<TensorView> state_input(const SequencePlan& plan, const StateTensor& state,
                               const TurnsOfRun& turns, size_t rows, Allocator& memory) noexcept {
  TensorView tensor{.type = state.type, .shape = state.shape, .byte_size = state.bytes};
  if (rows == 1 && turns[0] != nullptr) {
    tensor.data = const_cast<std::byte*>(turns[0]->state) + state.offset;  // inputs are read
    return tensor;
  }
  if (rows != 1) tensor.shape[0] = static_cast<int64_t>(rows);
  tensor.byte_size = state.bytes * rows;
  tensor.data = static_cast<std::byte*>(memory.allocate(tensor.byte_size, kTensorAlignment));
  if (tensor.data == nullptr) return no_room_for("the states of a run", tensor.byte_size);
  const std::byte* const first =
      plan.first_states.empty() ? nullptr : plan.first_states.data() + state.offset;
  for (size_t row = 0; row < rows; ++row) {
    std::byte* const to = tensor.data + row * state.bytes;
    const std::byte* const from = turns[row] != nullptr ? turns[row]->state + state.offset : first;
    if (from != nullptr) {
      std::memcpy(to, from, state.bytes);
    } else {
      std::memset(to, 0, state.bytes);
    }
  }
  return tensor;
}

Result<TensorView> control_input(const ControlTensor& control, const TurnsOfRun& turns, size_t rows,
                                 Allocator& memory) noexcept {
  TensorView tensor{.type = control.type, .shape = control.shape};
  if (rows != 1) tensor.shape[0] = static_cast<int64_t>(rows);
  if (control.type == ElementType::kBytes) return id_texts(tensor, turns, rows, memory);
  tensor.byte_size = element_size(control.type) * rows;
  tensor.data = static_cast<std::byte*>(memory.allocate(tensor.byte_size, kTensorAlignment));
  if (tensor.data == nullptr) return no_room_for("the controls of a run", tensor.byte_size);
  for (size_t row = 0; row < rows; ++row) {
    write_element(control, turns[row], tensor.data + row * element_size(control.type));
  }
  return tensor;
}

}  // namespace lumen::models
