// See the header for the protocol, threads, memory and errors.
#include <lumen/service/row_sampler.h>

#include "service/reservoir.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace lumen::service {
namespace {

Status check_inputs(const models::ModelMetadata& metadata) {
  if (metadata.sequences.state_bytes > 0) {
    return Status::error(Code::kUnsupported,
                         "model '%s' keeps states of sequences, on which its answers depend and "
                         "which no row has; rows of other models are recorded",
                         metadata.name.c_str());
  }
  for (const models::TensorSpec& input : metadata.inputs) {
    if (input.type != ElementType::kBytes && input.type != ElementType::kBf16) continue;
    return Status::error(
        Code::kUnsupported,
        "model '%s': input '%s' is %s; only rows of numbers that NumPy knows are recorded",
        metadata.name.c_str(), input.name.c_str(),
        std::string(element_type_name(input.type)).c_str());
  }
  return {};
}

// Of a slot where the model's shapes say how large a row is; nullopt: they do not.
std::optional<size_t> fixed_slot_bytes(const models::Model& model) {
  std::vector<size_t> bytes;
  for (const models::TensorSpec& input : model.metadata().inputs) {
    Shape row = input.shape;
    if (Reservoir::divides(model)) row[0] = 1;
    const std::optional<size_t> elements = row.element_count();
    if (!elements) return std::nullopt;
    bytes.push_back(*elements * element_size(input.type));
  }
  return Reservoir::slot_bytes_for(bytes);
}

}  // namespace

RowSampler::RowSampler(uint64_t max_bytes, std::function<void()> wait_for_turns)
    : max_bytes_(max_bytes), wait_for_turns_(std::move(wait_for_turns)) {}

RowSampler::~RowSampler() = default;

Status RowSampler::begin(std::shared_ptr<models::Model> model, uint32_t rows) {
  const models::ModelMetadata& metadata = model->metadata();
  if (reservoir_ != nullptr) {
    return Status::error(Code::kAlreadyExists,
                         "rows of model '%s' are being recorded; a server records one model at a "
                         "time: wait until that is over",
                         this->model()->metadata().name.c_str());
  }
  if (rows == 0 || rows > kMaxRows) {
    return Status::error(Code::kInvalidArgument, "rows: got %u, wanted 1 to %u", rows, kMaxRows);
  }
  LUMEN_RETURN_IF_ERROR(check_inputs(metadata));
  // Rows without a fixed size share all of it.
  const std::optional<size_t> fixed = fixed_slot_bytes(*model);
  const size_t slot_bytes = fixed.value_or(max_bytes_ / rows / 64 * 64);
  if (slot_bytes == 0 || slot_bytes > max_bytes_ / rows) {
    return Status::error(
        Code::kTooLarge,
        "%u rows of model '%s' need %zu bytes each, recording_bytes is %llu; ask "
        "for %llu rows at most, or start the server with a larger --recording-bytes",
        rows, metadata.name.c_str(), fixed.value_or(64),
        static_cast<unsigned long long>(max_bytes_),
        static_cast<unsigned long long>(max_bytes_ / fixed.value_or(64)));
  }
  auto reservoir = Reservoir::create(std::move(model), rows, slot_bytes);
  if (!reservoir.ok()) return reservoir.status();
  reservoir_ = std::move(*reservoir);
  // sync[row_sampler.current]: release; the reservoir is whole
  current_.store(reservoir_.get(), std::memory_order_release);
  return {};
}

void RowSampler::end() {
  // relaxed: wait_for_turns() orders it, and all that before() did, by catalog.acknowledged
  if (current_.exchange(nullptr, std::memory_order_relaxed) != nullptr) wait_for_turns_();
}

void RowSampler::drop() {
  end();
  reservoir_.reset();
}

const models::Model* RowSampler::model() const noexcept {
  return reservoir_ == nullptr ? nullptr : &reservoir_->model();
}

bool RowSampler::has_ended() const noexcept {
  return current_.load(std::memory_order_relaxed) == nullptr;  // relaxed: this thread stores it
}

RowSampler::Count RowSampler::count() const noexcept {
  if (reservoir_ == nullptr) return {};
  return {.seen = reservoir_->seen(),
          .kept = reservoir_->kept(),
          .left_out = reservoir_->left_out(),
          .bytes = reservoir_->bytes()};
}

std::vector<TensorView> RowSampler::row(uint32_t number) const {
  if (reservoir_ == nullptr || !has_ended()) return {};
  return reservoir_->row(number);
}

StepOutcome RowSampler::before(Call& call) noexcept {
  // sync[row_sampler.current]: acquire; the reservoir is whole
  Reservoir* const reservoir = current_.load(std::memory_order_acquire);
  if (reservoir != nullptr && call.infer.model == &reservoir->model()) {
    reservoir->take(call.infer);
  }
  return StepOutcome::kNext;
}

}  // namespace lumen::service
