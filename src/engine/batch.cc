// See the header for threads, memory and errors.
#include "engine/batch.h"

#include <algorithm>
#include <cstring>

namespace lumen::engine {
namespace {

constexpr size_t kTensorAlignment = 64;
// Touched memory that a batch keeps; more goes back to the kernel.
constexpr size_t kKeepBytes = 4 * 1024 * 1024;

}  // namespace

bool can_share_call(const models::InferRequest& a, const models::InferRequest& b) noexcept {
  if (a.model != b.model || rows_of(b) == 0 || a.runs_alone || b.runs_alone) return false;
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    const auto tail_a = a.inputs[i].shape.dimensions().subspan(1);
    const auto tail_b = b.inputs[i].shape.dimensions().subspan(1);
    if (!std::ranges::equal(tail_a, tail_b)) return false;
  }
  return true;
}

Result<Batch> Batch::create(uint32_t max_requests, size_t memory_bytes, RequestMemory::Kind kind,
                            const RegionOptions& regions) {
  Result<RequestMemory> memory = RequestMemory::create(memory_bytes, regions);
  if (!memory.ok()) return memory.status();
  Batch batch;
  batch.memory_ = std::move(*memory);
  batch.memory_.use(kind);
  batch.inputs_.reserve(limits::kMaxTensors);
  batch.members_.reserve(max_requests);
  return batch;
}

bool Batch::pack(std::span<models::InferRequest* const> members, uint32_t run_rows) noexcept {
  LUMEN_DCHECK(members.size() <= members_.capacity());
  const models::InferRequest& first = *members.front();
  members_.assign(members.begin(), members.end());
  inputs_.clear();
  run_rows_ = run_rows;
  for (size_t i = 0; i < first.inputs.size(); ++i) {
    const TensorView& pattern = first.inputs[i];
    const size_t row_bytes = pattern.byte_size / static_cast<size_t>(pattern.shape[0]);
    TensorView packed = pattern;
    packed.shape[0] = run_rows;
    packed.byte_size = row_bytes * run_rows;
    packed.data = static_cast<std::byte*>(memory_.allocate(packed.byte_size, kTensorAlignment));
    if (packed.data == nullptr) return false;
    std::byte* place = packed.data;
    for (const models::InferRequest* member : members) {
      const TensorView& input = member->inputs[i];
      std::memcpy(place, input.data, input.byte_size);
      place += input.byte_size;
    }
    std::memset(place, 0, static_cast<size_t>(packed.data + packed.byte_size - place));
    inputs_.push_back(packed);
  }
  request_ = {};
  request_.model = first.model;
  request_.inputs = inputs_;
  request_.members = members_;
  request_.memory = &memory_;
  request_.times = first.times;
  return true;
}

uint64_t Batch::rows() const noexcept {
  uint64_t rows = 0;
  for (const models::InferRequest* member : members_) rows += rows_of(*member);
  return rows;
}

void Batch::split() noexcept {
  uint64_t row = 0;
  members_.front()->times.device = request_.times.device;  // one run, counted once
  for (models::InferRequest* member : members_) {
    const models::StageTimes& times = request_.times;
    member->times.preprocessed_ns = times.preprocessed_ns;
    member->times.inferred_ns = times.inferred_ns;
    member->times.postprocessed_ns = times.postprocessed_ns;
    member->status = request_.status.ok() ? split_into(*member, row) : request_.status;
    row += rows_of(*member);
  }
}

Status Batch::split_into(models::InferRequest& member, uint64_t first_row) noexcept {
  const uint64_t rows = rows_of(member);
  const size_t wanted =
      member.outputs_wanted.empty() ? request_.outputs.size() : member.outputs_wanted.size();
  const std::span<TensorView> outputs = member.list_memory().allocate_array<TensorView>(wanted);
  const auto no_room = [&](size_t bytes) {
    return Status::error(Code::kTooLarge,
                         "outputs of model '%s' need %zu bytes more than the request's memory has",
                         member.model->metadata().name.c_str(), bytes);
  };
  if (outputs.size() != wanted) return no_room(wanted * sizeof(TensorView));
  for (size_t i = 0; i < wanted; ++i) {
    const size_t index = member.outputs_wanted.empty() ? i : member.outputs_wanted[i];
    const TensorView& all = request_.outputs[index];
    // Warm-up has seen that rows in are rows out; a model that changes its mind is told on.
    if (all.shape[0] != static_cast<int64_t>(run_rows_)) {
      return Status::error(Code::kInternal,
                           "model '%s': output '%s' of a batch of %u rows has %lld; serve it with "
                           "another queue_type than batched or inline, or batch_size 1",
                           member.model->metadata().name.c_str(),
                           member.model->metadata().outputs[index].name.c_str(), run_rows_,
                           static_cast<long long>(all.shape[0]));
    }
    const size_t row_bytes = all.byte_size / run_rows_;
    outputs[i] = all;
    outputs[i].shape[0] = static_cast<int64_t>(rows);
    outputs[i].byte_size = row_bytes * rows;
    outputs[i].data =
        static_cast<std::byte*>(member.memory->allocate(outputs[i].byte_size, kTensorAlignment));
    if (outputs[i].data == nullptr) return no_room(outputs[i].byte_size);
    std::memcpy(outputs[i].data, all.data + first_row * row_bytes, outputs[i].byte_size);
  }
  member.outputs = outputs;
  return {};
}

RequestMemory::Usage Batch::reset() noexcept {
  members_.clear();
  inputs_.clear();
  return memory_.reset(kKeepBytes);
}

}  // namespace lumen::engine
