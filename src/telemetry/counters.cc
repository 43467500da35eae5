// Layout of the region, blocks taken and given back, sums. See the header.
#include <lumen/telemetry/counters.h>

#include <lumen/base/check.h>

#include <sched.h>

#include <cstring>
#include <iterator>
#include <utility>

namespace lumen::telemetry {
namespace {

constexpr size_t round_up(size_t n) {
  return (n + kFalseSharingRange - 1) / kFalseSharingRange * kFalseSharingRange;
}

// Where each part begins. Only the histograms' number depends on the server.
constexpr size_t kServerDescriptors = round_up(sizeof(RegionHead));
constexpr size_t kModelDescriptors =
    kServerDescriptors + std::size(kServerCounters) * sizeof(RegionDescriptor);
constexpr size_t kStages = kModelDescriptors + std::size(kModelCounters) * sizeof(RegionDescriptor);
constexpr size_t kModels = round_up(kStages + kStageCount * sizeof(RegionStageName));
constexpr size_t kStates = round_up(kModels + limits::kMaxModels * sizeof(RegionModel));
constexpr size_t kBlocks = round_up(kStates + Counters::kMaxWriters * sizeof(BlockState));
constexpr size_t kServerSlotBytes = round_up(std::size(kServerCounters) * sizeof(uint64_t));
constexpr size_t kModelSlotBytes = round_up(std::size(kModelCounters) * sizeof(uint64_t));
constexpr size_t kBlockBytes = kServerSlotBytes + limits::kMaxModels * kModelSlotBytes;
constexpr size_t kHistograms = kBlocks + Counters::kMaxWriters * kBlockBytes;

template <typename T>
T* at(const Mapping& memory, size_t offset) noexcept {
  return reinterpret_cast<T*>(memory.data() + offset);
}

template <size_t kSize>
void put(char (&room)[kSize], std::string_view text) noexcept {
  const size_t size = std::min(text.size(), kSize - 1);
  std::memset(room, 0, kSize);
  std::memcpy(room, text.data(), size);
}

// What a reader shows must be whole; what does not fit does not compile.
constexpr bool fits(const CounterDescriptor& one) {
  const RegionDescriptor room;
  return one.name.size() < sizeof(room.name) && one.series.size() < sizeof(room.series) &&
         one.unit.size() < sizeof(room.unit) && one.help.size() < sizeof(room.help);
}
static_assert(std::ranges::all_of(kServerCounters, fits));
static_assert(std::ranges::all_of(kModelCounters, fits));
static_assert(limits::kMaxNameBytes < sizeof(RegionModel::name));

void describe_all(RegionDescriptor* out, std::span<const CounterDescriptor> table) noexcept {
  for (const CounterDescriptor& one : table) {
    out->kind = static_cast<uint32_t>(one.kind);
    put(out->name, one.name);
    put(out->series, one.series);
    put(out->unit, one.unit);
    put(out->help, one.help);
    ++out;
  }
}

Mapping mapping_for_one_shard() noexcept {
  Result<Mapping> memory = Mapping::create(Counters::bytes_for(1));
  LUMEN_CHECK(memory.ok());
  return std::move(*memory);
}

}  // namespace

size_t Counters::bytes_for(size_t shards) noexcept {
  return kHistograms + shards * limits::kMaxModels * kStageCount * sizeof(Histogram);
}

Counters::Counters() noexcept : Counters(mapping_for_one_shard(), 1) {}

Counters::Counters(Mapping region, size_t shards) noexcept
    : memory_(std::move(region)),
      stages_(at<Histogram>(memory_, kHistograms), limits::kMaxModels, shards) {
  static_assert(kModelSlotBytes == CounterWriter::kModelSlots * sizeof(Slot));
  LUMEN_CHECK(memory_.size() >= bytes_for(shards));
  describe(shards);
}

void Counters::describe(size_t shards) noexcept {
  describe_all(at<RegionDescriptor>(memory_, kServerDescriptors), kServerCounters);
  describe_all(at<RegionDescriptor>(memory_, kModelDescriptors), kModelCounters);
  auto* stage = at<RegionStageName>(memory_, kStages);
  for (const std::string_view name : kStageNames) put((stage++)->name, name);
  const auto table = [](size_t offset, size_t stride, size_t count) {
    return RegionTable{offset, static_cast<uint32_t>(stride), static_cast<uint32_t>(count)};
  };
  RegionHead head;
  head.stages = kStageCount;
  head.bytes = bytes_for(shards);
  head.server_descriptors =
      table(kServerDescriptors, sizeof(RegionDescriptor), std::size(kServerCounters));
  head.model_descriptors =
      table(kModelDescriptors, sizeof(RegionDescriptor), std::size(kModelCounters));
  head.stage_names = table(kStages, sizeof(RegionStageName), kStageCount);
  head.models = table(kModels, sizeof(RegionModel), limits::kMaxModels);
  head.states = table(kStates, sizeof(BlockState), kMaxWriters);
  head.blocks = table(kBlocks, kBlockBytes, kMaxWriters);
  head.server_slots = table(0, sizeof(Slot), std::size(kServerCounters));
  head.model_slots = table(kServerSlotBytes, kModelSlotBytes, limits::kMaxModels);
  head.histograms =
      table(kHistograms, sizeof(Histogram), shards * limits::kMaxModels * kStageCount);
  std::memcpy(memory_.data(), &head, sizeof(head));
}

std::span<const std::byte> Counters::region() const noexcept {
  return std::span(memory_.data(), bytes_for(stages_.shards()));
}

std::atomic<BlockState>& Counters::state(size_t block) const noexcept {
  return at<std::atomic<BlockState>>(memory_, kStates)[block];
}

Counters::Slot* Counters::server_slots(size_t block) const noexcept {
  return at<Slot>(memory_, kBlocks + block * kBlockBytes);
}

Counters::Slot* Counters::model_slots(size_t block, uint32_t model) const noexcept {
  return at<Slot>(memory_,
                  kBlocks + block * kBlockBytes + kServerSlotBytes + model * kModelSlotBytes);
}

template <typename SlotOf>
uint64_t Counters::gather(CounterKind kind, SlotOf&& slot_of) const noexcept {
  uint64_t total = 0;
  for (size_t block = 0; block < kMaxWriters; ++block) {
    // relaxed, both: a block that is taken just now has counted nothing yet that this must see
    if (state(block).load(std::memory_order_relaxed) == BlockState::kUnused) continue;
    const uint64_t value = slot_of(block).load(std::memory_order_relaxed);
    total = kind == CounterKind::kLatest ? std::max(total, value) : total + value;
  }
  return total;
}

uint64_t Counters::total(ServerCounter counter) const noexcept {
  return gather(counter.descriptor().kind,
                [&](size_t block) -> const Slot& { return server_slots(block)[counter.index()]; });
}

uint64_t Counters::total(uint32_t model, ModelCounter counter) const noexcept {
  return gather(counter.descriptor().kind, [&](size_t block) -> const Slot& {
    return model_slots(block, model)[counter.index()];
  });
}

void Counters::assign_model(uint32_t index, std::string_view name,
                            std::string_view version) noexcept {
  RegionModel& model = at<RegionModel>(memory_, kModels)[index];
  release_model(index);
  for (size_t block = 0; block < kMaxWriters; ++block) {
    // relaxed, both: nobody counts for this index now, and who will is told of the model after this
    if (state(block).load(std::memory_order_relaxed) == BlockState::kUnused) continue;
    for (Slot& slot : std::span(model_slots(block, index), std::size(kModelCounters))) {
      slot.store(0, std::memory_order_relaxed);
    }
  }
  stages_.clear(index);
  put(model.name, name);
  put(model.version, version);
  // sync[counters.model]: release; what was cleared, and the name
  model.generation.store(++generations_, std::memory_order_release);
}

void Counters::release_model(uint32_t index) noexcept {
  // sync[counters.model]: acquire, so that nothing is cleared before a reader in another process can see
  // the 0
  at<RegionModel>(memory_, kModels)[index].generation.exchange(0, std::memory_order_acq_rel);
}

CounterWriter::CounterWriter(Counters& counters, Stay stay) noexcept : counters_(counters) {
  for (;;) {
    for (size_t i = 0; i < Counters::kMaxWriters; ++i) {
      if (take(stay == Stay::kLong ? i : Counters::kMaxWriters - 1 - i)) return;
    }
    LUMEN_CHECK(stay == Stay::kMoment);  // kMaxWriters has room for all who stay
    ::sched_yield();
  }
}

bool CounterWriter::take(size_t block) noexcept {
  std::atomic<BlockState>& state = counters_.state(block);
  // relaxed: only whether it is worth trying
  BlockState seen = state.load(std::memory_order_relaxed);
  if (seen == BlockState::kTaken) return false;
  // sync[counters.block]: acquire; what the writer before has counted, from which this one goes on
  if (!state.compare_exchange_strong(seen, BlockState::kTaken, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
    return false;
  }
  block_ = block;
  server_ = counters_.server_slots(block);
  models_ = counters_.model_slots(block, 0);
  return true;
}

CounterWriter::~CounterWriter() {
  // sync[counters.block]: release; the next writer goes on from what was counted here
  counters_.state(block_).store(BlockState::kFree, std::memory_order_release);
}

}  // namespace lumen::telemetry
