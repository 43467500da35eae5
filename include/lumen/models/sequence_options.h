// Models that keep states between the requests of a sequence: "sequences" of a model's config.json,
// or Triton's "sequence_batching". A state is a pair of tensors of the model: the server feeds the
// output of one request into the input of the next, and clients see neither.
// Threads: any. Memory: the heap, on the control plane. Errors: Result with the state, the value
// got and the values wanted.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/metadata.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::models {

// One state, by the names of its tensors.
struct StateOptions {
  std::string input;
  std::string output;
  // As a configuration in Triton's form says them; checked against the model.
  std::optional<ElementType> type{};
  std::optional<Shape> dims{};
  // A file with the elements of a sequence that begins, and its bytes. Empty: zeros.
  std::string initial_file{};
  std::vector<std::byte> initial{};
};

// An input that the server fills: it tells the model of the request's sequence.
struct ControlOptions {
  enum class Kind : uint8_t {
    kStart,  // the request starts its sequence
    kEnd,    // it ends it
    kReady,  // the row is a request's, and none that fills up a run
    kId,     // the id of the sequence
  };
  std::string input;
  Kind kind = Kind::kStart;
  // As a configuration in Triton's form says it; checked against the model.
  std::optional<ElementType> type{};
  // Of all kinds but kId.
  double value_if_false = 0;
  double value_if_true = 1;
};
constexpr std::array<std::string_view, 4> kControlNames = {"start", "end", "ready", "id"};

struct SequenceOptions {
  static constexpr uint64_t kMostIdleMs = uint64_t{24} * 3600 * 1000;
  static constexpr uint32_t kMostSequences = 1'000'000;
  // Empty, both: its requests are of no sequence. No states: a program keeps them, by the id that a
  // control gives it.
  std::vector<StateOptions> states{};
  std::vector<ControlOptions> controls{};
  // A sequence without a request for so long is dropped.
  uint64_t idle_ms = 60'000;
  // Live ones; one more is refused.
  uint32_t most = 1024;

  [[nodiscard]] bool are_on() const noexcept { return !states.empty() || !controls.empty(); }
  [[nodiscard]] bool are_kept_by_model() const noexcept {
    return states.empty() && !controls.empty();
  }
};

// A state as the model has it.
struct StateTensor {
  size_t input = 0;  // its index in the model's inputs
  size_t output = 0;
  ElementType type = ElementType::kFp32;
  Shape shape{};      // of one sequence: a free axis is 1
  size_t offset = 0;  // of its bytes in the memory of a sequence
  size_t bytes = 0;
};

// A control as the model has it: one element for each sequence.
struct ControlTensor {
  size_t input = 0;
  ControlOptions::Kind kind{};
  ElementType type = ElementType::kFp32;
  Shape shape{};  // of one sequence
  // The element, of all kinds but kId.
  std::array<std::byte, 4> bytes_if_false{};
  std::array<std::byte, 4> bytes_if_true{};
};

struct SequencePlan {
  // Of all live sequences of a model together, each counted once; the server has two copies.
  static constexpr uint64_t kMostBytes = uint64_t{16} << 30;
  std::vector<StateTensor> states{};      // in the order of the options
  std::vector<ControlTensor> controls{};  // the same
  size_t bytes = 0;                       // of one sequence
  std::vector<std::byte> first_states{};  // of one that begins; empty: zeros
  // The model keeps the states itself, and the server the number of the memory that holds them
  // (Instance::memory_number()).
  bool is_kept_by_model = false;
  // The first axis of each state and control is free: several sequences stand in one tensor.
  bool has_rows = true;
};

// `model`: as its backend has loaded it, with the tensors of the states.
[[nodiscard]] Result<SequencePlan> plan_sequences(const SequenceOptions& options,
                                                  const ModelMetadata& model);

}  // namespace lumen::models
