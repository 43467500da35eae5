// See the header for threads, memory and errors.
#include <lumen/sequences/sequences.h>

#include <lumen/base/clock.h>
#include <lumen/models/model_repository.h>

#include "sequences/refusals.h"
#include "sequences/sequence_table.h"

#include <algorithm>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

namespace lumen::sequences {
namespace {

// Whether a model's input of ids has this one; without such an input it has.
bool takes_id(std::optional<ElementType> type, const wire::SequenceWishes& id) noexcept {
  if (!type || *type == ElementType::kBytes) return true;
  if (!id.text.empty()) return false;
  switch (*type) {
    case ElementType::kInt32: return id.number <= INT32_MAX;
    case ElementType::kUint32: return id.number <= UINT32_MAX;
    case ElementType::kInt64: return id.number <= INT64_MAX;
    default: return true;
  }
}

// Of a literal.
std::string_view type_of_ids(const models::ModelMetadata& metadata) noexcept {
  return element_type_name(*metadata.sequences.id_type);
}

// A request that no sequence takes.
Status check(const service::Call& call) noexcept {
  const models::ModelMetadata& metadata = call.infer.model->metadata();
  if (!call.sequence.has_id()) {
    return Status::error(Code::kInvalidArgument,
                         "model '%s' keeps states of sequences; say which by the parameter "
                         "sequence_id, a number of 1 or more or a text, and begin it with "
                         "sequence_start",
                         metadata.name.c_str());
  }
  if (!takes_id(metadata.sequences.id_type, call.sequence)) {
    return Status::error(Code::kInvalidArgument,
                         "model '%s' takes the ids of sequences as %s, as which sequence_id does "
                         "not fit; send a number of that type",
                         metadata.name.c_str(), type_of_ids(metadata).data());
  }
  const uint32_t rows = metadata.sequences.have_rows ? rows_of(call.infer) : 1;
  if (rows == 1) return {};
  return Status::error(Code::kInvalidArgument,
                       "model '%s' keeps states of sequences, each of one row; got inputs of %lld "
                       "rows. Give each row a sequence and a request of its own",
                       metadata.name.c_str(),
                       static_cast<long long>(call.infer.inputs[0].shape[0]));
}

}  // namespace

Sequences::Sequences(size_t calls, telemetry::Counters& counters)
    : calls_(calls), counters_(counters) {}
Sequences::~Sequences() = default;

Status Sequences::add(const models::Model& model) {
  const models::SequenceForm& form = model.metadata().sequences;
  if (form.state_bytes == 0) return {};
  const std::lock_guard lock(mutex_);
  Status status;
  try {
    Result<std::unique_ptr<SequenceTable>> table = SequenceTable::create(
        model.sequences(), form, calls_, counters_.live_sequences(model.index()));
    if (table.ok()) {
      tables_[model.index()] = std::move(*table);
      return {};
    }
    status = table.status();
  } catch (const std::bad_alloc&) {
    status = Status::error(Code::kResourceExhausted, "no memory for their list");
  }
  return Status::error(status.code(),
                       "model '%s': states of %u sequences: %s; lower "
                       "\"sequences.most\" in its config.json",
                       model.metadata().name.c_str(), model.sequences().most, status.c_message());
}

void Sequences::remove(const models::Model& model) noexcept {
  const std::lock_guard lock(mutex_);
  tables_[model.index()] = nullptr;
}

service::StepOutcome Sequences::before(service::Call& call) noexcept {
  const models::Model& model = *call.infer.model;
  if (model.metadata().sequences.state_bytes == 0) return service::StepOutcome::kNext;
  SequenceTable* const table = tables_[model.index()].get();
  call.infer.status = check(call);
  if (!call.infer.status.ok()) return service::StepOutcome::kDone;
  const char* const name = model.metadata().name.c_str();
  if (table == nullptr) {
    call.infer.status = Status::error(Code::kUnavailable,
                                      "model '%s': the server has no memory for its states", name);
    return service::StepOutcome::kDone;
  }
  Ask* const ask = table->ask(call, now_ns());
  if (ask == nullptr) {
    call.infer.status = Status::error(
        Code::kResourceExhausted,
        "model '%s': too many requests wait for their sequences; send fewer at once", name);
    return service::StepOutcome::kDone;
  }
  if (!SequenceTable::is_answered(*ask)) return service::StepOutcome::kParked;
  if (ask->answer == Answer::kItsTurn) {
    call.infer.turn = &ask->turn;
    return service::StepOutcome::kNext;
  }
  call.infer.status = refusal(ask->answer, call);
  call.sequence_ask = nullptr;
  table->free(*ask);
  return service::StepOutcome::kDone;
}

void Sequences::after(service::Call& call) noexcept {
  Ask* const ask = std::exchange(call.sequence_ask, nullptr);
  if (ask == nullptr) return;
  call.infer.turn = nullptr;  // it is the ask's
  tables_[call.infer.model->index()]->end(*ask, !call.infer.status.ok(), now_ns());
}

bool Sequences::abandon(service::Call& call) noexcept { return SequenceTable::abandon(call); }

std::optional<Sequences::Usage> Sequences::usage(const models::Model& model) const {
  const std::lock_guard lock(mutex_);
  SequenceTable* const table = tables_[model.index()].get();
  if (table == nullptr) return std::nullopt;
  table->sweep(now_ns());
  return table->usage();
}

bool Sequences::is_idle() const noexcept {
  return std::ranges::all_of(
      tables_, [](const auto& table) { return table == nullptr || table->is_idle(); });
}

}  // namespace lumen::sequences
