// Warm-up: see the header. Control plane.
#include "engine/model_slot.h"

#include <lumen/base/clock.h>

#include <lumen/models/trial_run.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace lumen::engine {
namespace {

// A size is run this often, or this long, whichever ends first, and its fastest run counts: noise
// of the machine only ever adds.
constexpr int kMeasuredRuns = 15;
constexpr int kLeastRuns = 3;
constexpr uint64_t kMeasureForNs = 60'000'000;
// A call with more rows than one is reckoned so much dearer than measured: two measurements of the
// same call differ by some percent, and a batch also costs its packing and splitting.
constexpr uint64_t kMarginPercent = 5;
// The trial of gains_by_packing().
constexpr uint32_t kTrialRows = 4;
constexpr uint64_t kLeastGainPercent = 10;
// For a batch's inputs and outputs; virtual memory until touched.
constexpr size_t kBatchBytes = size_t{256} << 20;

// Whether `rows` rows in one call give, bit for bit, the same as one by one. An f32 model promises
// its framework's results for a request, and kernels may add up in another order for another number
// of rows. That they are independent, as the graph says, is known before.
bool rows_are_independent(ModelSlot& slot, RequestMemory& memory, uint32_t rows) {
  models::TrialRun together(slot.model->metadata(), slot.model, memory);
  if (!together.run(*slot.instance, 0, rows)) return false;
  models::TrialRun alone(slot.model->metadata(), slot.model, memory);
  for (uint32_t row = 0; row < rows; ++row) {
    if (!alone.run(*slot.instance, row, 1)) return false;
    for (size_t i = 0; i < alone.outputs().size(); ++i) {
      const TensorView& one = alone.outputs()[i];
      const TensorView& all = together.outputs()[i];
      if (one.shape[0] != 1 || all.shape[0] != rows || all.byte_size != one.byte_size * rows) {
        return false;
      }
      if (std::memcmp(all.data + row * one.byte_size, one.data, one.byte_size) != 0) return false;
    }
  }
  return true;
}

struct Measured {
  uint64_t ns = 0;  // the fastest of some runs; 0: it failed
  uint64_t input_bytes = 0;
};
Measured measure(ModelSlot& slot, RequestMemory& memory, uint32_t rows, int least_runs = kLeastRuns,
                 int64_t free_size = 0) {
  Measured measured{.ns = UINT64_MAX};
  slot.has_run = true;
  const uint64_t begin = now_ns();
  for (int run = 0; run < kMeasuredRuns; ++run) {
    if (run >= least_runs && now_ns() - begin > kMeasureForNs) break;
    memory.reset(kBatchBytes);
    models::TrialRun trial(slot.model->metadata(), slot.model, memory);
    const uint64_t before = now_ns();
    if (!trial.run(*slot.instance, 0, rows, free_size)) return {};
    measured.ns = std::min(measured.ns, now_ns() - before);
    measured.input_bytes = trial.input_bytes();
  }
  return measured;
}

// The first call of a size does work that later ones use again. Its failure is no news: the size
// was measured before, and a request will tell.
void run_once(ModelSlot& slot, RequestMemory& memory, uint32_t rows, int64_t free_size = 0) {
  slot.has_run = true;
  memory.reset(kBatchBytes);
  (void)models::TrialRun(slot.model->metadata(), slot.model, memory)
      .run(*slot.instance, 0, rows, free_size);
}

// The time with which admission and the choice of a queue reckon until requests have run: otherwise
// the first burst would all be let in.
Status learn_service_time(ModelSlot& slot) {
  Result<RequestMemory> memory = RequestMemory::create(kBatchBytes);
  if (!memory.ok()) return memory.status();
  std::optional<models::KnownCosts::Request>& known = slot.model->known_costs().request;
  if (known) {
    run_once(slot, *memory, 1, models::TrialRun::kUsualFreeSize);
  } else {
    const Measured one = measure(slot, *memory, 1, 1, models::TrialRun::kUsualFreeSize);
    // Otherwise rows can't be made up for it, and its first request will tell.
    if (one.ns > 0) known = {.ns = one.ns, .input_bytes = one.input_bytes};
  }
  if (known) {
    slot.model->service_time().restart(known->ns);
    slot.model->run_costs().add(known->input_bytes, known->ns);
  }
  return {};
}

// Of one row and of each of `sizes` that gives the same rows.
Result<std::vector<models::SizeCost>> measure_sizes(ModelSlot& slot,
                                                    const std::vector<uint32_t>& sizes) {
  Result<RequestMemory> memory = RequestMemory::create(kBatchBytes);
  if (!memory.ok()) return memory.status();
  std::vector<models::SizeCost> costs;
  if (const uint64_t ns = measure(slot, *memory, 1).ns; ns > 0) costs.push_back({1, ns});
  for (const uint32_t rows : sizes) {
    memory->reset(kBatchBytes);
    if (costs.empty() || !rows_are_independent(slot, *memory, rows)) continue;
    if (const uint64_t ns = measure(slot, *memory, rows).ns; ns > 0) {
      costs.push_back({rows, ns + ns * kMarginPercent / 100});
    }
  }
  return costs;
}

Status run_each_once(ModelSlot& slot, std::span<const models::SizeCost> sizes) {
  Result<RequestMemory> memory = RequestMemory::create(kBatchBytes);
  if (!memory.ok()) return memory.status();
  for (const models::SizeCost& size : sizes) run_once(slot, *memory, size.rows);
  return {};
}

enum class Compiled : uint8_t { kNo, kYes };

Status plan_batches(ModelSlot& slot, const EngineConfig& config, const RegionOptions& regions,
                    const std::vector<uint32_t>& sizes, Compiled compiled) {
  // The same sizes cost more where the instance was not compiled for them.
  std::vector<uint32_t> key = sizes;
  if (compiled == Compiled::kNo) key.push_back(0);
  auto& all = slot.model->known_costs().sizes;
  auto known = all.find(key);
  const bool is_known = known != all.end();
  if (!is_known) {
    Result<std::vector<models::SizeCost>> measured = measure_sizes(slot, sizes);
    if (!measured.ok()) return measured.status();
    known = all.emplace(key, std::move(*measured)).first;
  }
  const std::vector<models::SizeCost>& costs = known->second;
  const auto largest = std::ranges::max_element(costs, {}, &models::SizeCost::rows);
  if (costs.size() < 2) return {};
  slot.plan = BatchPlan(costs, std::min(config.batch_size, largest->rows));
  if (!slot.plan.packs()) return {};
  if (is_known) LUMEN_RETURN_IF_ERROR(run_each_once(slot, costs));
  const auto kind = config.allocator_type == models::AllocatorType::kStandard
                        ? RequestMemory::Kind::kHeap
                        : RequestMemory::Kind::kArena;
  for (uint32_t i = 0; i < slot.max_in_flight; ++i) {
    Result<Batch> batch = Batch::create(config.batch_size, kBatchBytes, kind, regions);
    if (!batch.ok()) return batch.status();
    slot.batches.push_back(std::make_unique<BatchPlace>(std::move(*batch)));
  }
  return {};
}

// By a call of few rows: most models that gain nothing then gain nothing with more, and all sizes
// of a heavy one would take seconds.
bool gains_by_packing(ModelSlot& slot, const std::vector<uint32_t>& sizes) {
  const uint32_t rows = std::min(sizes.back(), kTrialRows);
  std::map<uint32_t, bool>& all = slot.model->known_costs().gains_by_packing;
  if (const auto known = all.find(rows); known != all.end()) return known->second;
  Result<RequestMemory> memory = RequestMemory::create(kBatchBytes);
  if (!memory.ok()) return false;
  const uint64_t one_ns = measure(slot, *memory, 1).ns;
  const uint64_t several_ns = measure(slot, *memory, rows).ns;
  if (one_ns == 0 || several_ns == 0) return false;
  const bool gains = several_ns * 100 < one_ns * rows * (100 - kLeastGainPercent);
  all.emplace(rows, gains);
  return gains;
}

std::vector<uint32_t> sizes_for(const models::Model& model, const EngineConfig& config) {
  const bool may_pack = has_batch_axis(model.metadata()) && model.why_not_packed().empty();
  return may_pack ? batch_sizes_of(config) : std::vector<uint32_t>();
}

}  // namespace

std::vector<uint32_t> batch_sizes_of(const EngineConfig& config) {
  const bool packs = config.queue_type == models::QueueType::kBatched ||
                     config.queue_type == models::QueueType::kInline;
  std::vector<uint32_t> sizes;
  if (!packs || config.batch_size < 2) return sizes;
  for (uint32_t rows = 2; rows < config.batch_size; rows *= 2) sizes.push_back(rows);
  sizes.push_back(config.batch_size);
  return sizes;
}

Result<std::shared_ptr<models::Instance>> SharedInstances::of(
    models::Model& model, std::span<const uint32_t> batch_sizes) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<models::Instance>& shared = made_[&model];
  if (shared == nullptr) {
    Result<std::unique_ptr<models::Instance>> made = model.make_instance(batch_sizes);
    if (!made.ok()) return made.status();
    shared = std::move(*made);
  }
  return shared;
}

Result<std::unique_ptr<ModelSlot>> make_slot(models::Model& model, const EngineConfig& config,
                                             SharedInstances& shared) {
  auto slot = std::make_unique<ModelSlot>();
  slot->model = &model;
  slot->gathers = config.queue_type == models::QueueType::kBatched;
  if (model.state() != models::ModelState::kReady) return slot;
  const std::vector<uint32_t> sizes = sizes_for(model, config);
  if (model.traits().shares_instances) {
    Result<std::shared_ptr<models::Instance>> instance = shared.of(model, sizes);
    if (!instance.ok()) return instance.status();
    slot->instance = std::move(*instance);
  } else {
    Result<std::unique_ptr<models::Instance>> instance = model.make_instance(sizes);
    if (!instance.ok()) return instance.status();
    slot->instance = std::move(*instance);
  }
  slot->max_in_flight = std::max<uint32_t>(1, slot->instance->max_in_flight());
  return slot;
}

Status plan_slot(ModelSlot& slot, const EngineConfig& config, const RegionOptions& regions) {
  if (slot.instance == nullptr) return {};
  const bool reckons = config.latency_budget_us > 0 ||
                       config.queue_type == models::QueueType::kAuto ||
                       slot.model->scheduling().queue_type != models::QueueType::kAuto;
  if (reckons && slot.model->service_time().mean_ns() == 0) {
    LUMEN_RETURN_IF_ERROR(learn_service_time(slot));
  }
  // Unless it says otherwise, a device that takes several requests at once overlaps them itself.
  if (slot.max_in_flight > 1 && !slot.model->traits().batches_in_flight) return {};
  const std::vector<uint32_t> sizes = sizes_for(*slot.model, config);
  return sizes.empty() ? Status() : plan_batches(slot, config, regions, sizes, Compiled::kYes);
}

Status pack_slot(ModelSlot& slot, const EngineConfig& config, const RegionOptions& regions) {
  EngineConfig packing = config;
  packing.queue_type = models::QueueType::kBatched;
  const std::vector<uint32_t> sizes = sizes_for(*slot.model, packing);
  const bool overlaps = slot.max_in_flight > 1 && !slot.model->traits().batches_in_flight;
  if (slot.instance == nullptr || overlaps || sizes.empty() || !gains_by_packing(slot, sizes)) {
    return {};
  }
  slot.gathers = true;
  return plan_batches(slot, packing, regions, sizes, Compiled::kNo);
}

}  // namespace lumen::engine
