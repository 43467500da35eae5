// Layout of the region, rows taken and given back, sums. See the header.
#include <lumen/telemetry/counters.h>

#include "telemetry/region_layout.h"

#include <lumen/base/check.h>
#include <lumen/base/clock.h>
#include <lumen/telemetry/counters_file.h>

#include "telemetry/process_facts.h"

#include <sched.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <utility>

namespace lumen::telemetry {
namespace {

template <typename T>
T* at(std::byte* region, size_t offset) noexcept {
  return reinterpret_cast<T*>(region + offset);
}

template <size_t kSize>
void put(char (&room)[kSize], std::string_view text) noexcept {
  const size_t size = std::min(text.size(), kSize - 1);
  std::memset(room, 0, kSize);
  std::memcpy(room, text.data(), size);
}

// The texts of a reader must be whole; a text that does not fit does not compile.
constexpr bool fits(const CounterDescriptor& one) {
  const RegionDescriptor room;
  return one.name.size() < sizeof(room.name) && one.series.size() < sizeof(room.series) &&
         one.unit.size() < sizeof(room.unit) && one.help.size() < sizeof(room.help);
}
static_assert(std::ranges::all_of(kServerCounters, fits));
static_assert(std::ranges::all_of(kModelCounters, fits));
static_assert(limits::kMaxNameBytes < sizeof(RegionModel::name));

// As ThreadTimes has them, one behind the other.
constexpr ServerCounter kThreadWords[] = {"busy_ns", "spin_ns", "park_ns", "thread_state",
                                          "thread_since_ns"};
static_assert(kThreadWords[4].index() == kThreadWords[0].index() + 4);

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

RegionTable table(size_t offset, size_t stride, size_t count) noexcept {
  return {offset, static_cast<uint32_t>(stride), static_cast<uint32_t>(count)};
}

RegionTable put_names(std::byte* region, size_t offset,
                      std::span<const std::string_view> names) noexcept {
  LUMEN_CHECK(names.size() <= RegionLayout::kMaxTypes);
  auto* out = at<RegionName>(region, offset);
  for (const std::string_view name : names) put((out++)->name, name);
  return table(offset, sizeof(RegionName), names.size());
}

Mapping mapping_for_one_shard() noexcept {
  Result<Mapping> memory = Mapping::create(Counters::bytes_for(1));
  LUMEN_CHECK(memory.ok());
  return std::move(*memory);
}

}  // namespace

size_t Counters::bytes_for(size_t shards) noexcept { return RegionLayout(shards).bytes; }

Counters::Counters() noexcept : Counters(mapping_for_one_shard()) {}

Counters::Counters(Mapping region, const CountersOptions& options) noexcept
    : Counters(region.data(), region.size(), options) {
  memory_ = std::move(region);
}

Counters::Counters(std::byte* region, size_t bytes, const CountersOptions& options) noexcept
    : region_(region),
      stages_(region + RegionLayout(options.shards).sections + RegionLayout::kHistograms,
              RegionLayout(options.shards).section_bytes, limits::kMaxModels, options.shards) {
  LUMEN_CHECK(bytes >= bytes_for(options.shards));
  describe(options);
}

Result<std::unique_ptr<Counters>> Counters::create(CountersFile& file,
                                                   const CountersOptions& options) {
  // Sections are taken one by one, as models come.
  LUMEN_RETURN_IF_ERROR(file.allocate(0, RegionLayout(options.shards).sections));
  std::unique_ptr<Counters> counters(  // alloc: at start
      new Counters(file.data(), file.size(), options));
  counters->file_ = &file;
  LUMEN_RETURN_IF_ERROR(file.publish());
  return counters;
}

void Counters::describe(const CountersOptions& options) noexcept {
  using L = RegionLayout;
  const L layout(options.shards);
  describe_all(at<RegionDescriptor>(region_, L::kServerDescriptors), kServerCounters);
  describe_all(at<RegionDescriptor>(region_, L::kModelDescriptors), kModelCounters);
  RegionHead head;
  head.stages = kStageCount;
  head.bytes = layout.bytes;
  head.shards = static_cast<uint32_t>(options.shards);
  const ProcessFacts facts = ProcessFacts::now();
  head.pid = facts.pid;
  head.started_wall_ns = facts.wall_ns;
  head.started_ns = facts.monotonic_ns;
  head.started_ticks = facts.start_ticks;
  put(head.lumen_version, LUMEN_VERSION);
  head.server_descriptors =
      table(L::kServerDescriptors, sizeof(RegionDescriptor), std::size(kServerCounters));
  head.model_descriptors =
      table(L::kModelDescriptors, sizeof(RegionDescriptor), std::size(kModelCounters));
  head.stage_names = put_names(region_, L::kStageNames, kStageNames);
  head.queue_types = put_names(region_, L::kQueueTypes, options.queue_types);
  head.allocator_types = put_names(region_, L::kAllocatorTypes, options.allocator_types);
  head.models = table(L::kModels, sizeof(RegionModel), limits::kMaxModels);
  head.writers = table(L::kWriters, sizeof(RegionWriter), kMaxWriters);
  head.server_slots = table(L::kServerSlots, L::kServerSlotBytes, kMaxWriters);
  head.sections = table(layout.sections, layout.section_bytes, limits::kMaxModels);
  head.section_slots = table(0, L::kModelSlotBytes, kMaxWriters);
  head.section_histograms = table(L::kHistograms, sizeof(Histogram), options.shards * kStageCount);
  head.recent = table(L::kRecent, L::kRecentStride, options.shards);
  head.slow = table(layout.slow, L::kSlowStride, options.shards);
  std::memcpy(region_, &head, sizeof(head));
}

std::span<const std::byte> Counters::region() const noexcept {
  return std::span(region_, bytes_for(stages_.shards()));
}

std::span<std::byte> Counters::recent(size_t shard) const noexcept {
  return {region_ + RegionLayout::kRecent + shard * RegionLayout::kRecentStride, kRecentBytes};
}

std::span<std::byte> Counters::slow(size_t shard) const noexcept {
  return {region_ + RegionLayout(stages_.shards()).slow + shard * RegionLayout::kSlowStride,
          kSlowBytes};
}

RegionWriter& Counters::writer(size_t row) const noexcept {
  return at<RegionWriter>(region_, RegionLayout::kWriters)[row];
}

Counters::Slot* Counters::server_slots(size_t row) const noexcept {
  return at<Slot>(region_, RegionLayout::kServerSlots + row * RegionLayout::kServerSlotBytes);
}

Counters::Slot* Counters::model_slots(size_t row, uint32_t model) const noexcept {
  const RegionLayout layout(stages_.shards());
  return at<Slot>(region_, layout.sections + model * layout.section_bytes +
                               row * RegionLayout::kModelSlotBytes);
}

template <typename Function>
void Counters::for_used_rows(Function&& function) const noexcept {
  const auto look_at = [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      // relaxed, as the two bounds: a row that is taken just now has counted nothing yet that this
      // must see
      if (states_[row].load(std::memory_order_relaxed) != WriterState::kUnused) function(row);
    }
  };
  const size_t long_end = long_end_.load(std::memory_order_relaxed);  // relaxed: as above
  look_at(0, long_end);
  look_at(std::max(long_end, moment_begin_.load(std::memory_order_relaxed)), kMaxWriters);
}

void Counters::widen(size_t row, bool is_long) noexcept {
  std::atomic<size_t>& bound = is_long ? long_end_ : moment_begin_;
  const size_t wanted = is_long ? row + 1 : row;
  // relaxed, all: as for_used_rows() says
  size_t seen = bound.load(std::memory_order_relaxed);
  while ((is_long ? seen < wanted : seen > wanted) &&
         !bound.compare_exchange_weak(seen, wanted, std::memory_order_relaxed)) {
  }
}

template <typename SlotOf>
uint64_t Counters::gather(CounterKind kind, SlotOf&& slot_of) const noexcept {
  if (kind == CounterKind::kThread) return 0;
  uint64_t total = 0;
  for_used_rows([&](size_t row) {
    const uint64_t value = slot_of(row).load(std::memory_order_relaxed);  // relaxed: as in bump()
    total = kind == CounterKind::kLatest ? std::max(total, value) : total + value;
  });
  // Below zero for a moment, if a subtraction was seen and its addition was not.
  if (kind == CounterKind::kGauge && static_cast<int64_t>(total) < 0) return 0;
  return total;
}

uint64_t Counters::total(ServerCounter counter) const noexcept {
  return gather(counter.descriptor().kind,
                [&](size_t row) -> const Slot& { return server_slots(row)[counter.index()]; });
}

uint64_t Counters::total(uint32_t model, ModelCounter counter) const noexcept {
  return gather(counter.descriptor().kind, [&](size_t row) -> const Slot& {
    return model_slots(row, model)[counter.index()];
  });
}

Status Counters::assign_model(uint32_t index, std::string_view name,
                              std::string_view version) noexcept {
  if (file_ != nullptr) {
    const RegionLayout layout(stages_.shards());
    LUMEN_RETURN_IF_ERROR(
        file_->allocate(layout.sections + index * layout.section_bytes, layout.section_bytes));
  }
  RegionModel& model = at<RegionModel>(region_, RegionLayout::kModels)[index];
  release_model(index);
  for_used_rows([&](size_t row) {
    for (Slot& slot : std::span(model_slots(row, index), std::size(kModelCounters))) {
      // relaxed: no thread counts for this index now, and later ones are told of the model after
      // this
      slot.store(0, std::memory_order_relaxed);
    }
  });
  stages_.clear(index);
  put(model.name, name);
  put(model.version, version);
  set_precision(index, 0);
  live_sequences(index).store(0, std::memory_order_relaxed);  // relaxed: as above
  // sync[counters.model]: release; the cleared slots, and the name
  model.generation.store(++generations_, std::memory_order_release);
  return {};
}

void Counters::set_precision(uint32_t index, uint32_t precision) noexcept {
  RegionModel& model = at<RegionModel>(region_, RegionLayout::kModels)[index];
  // relaxed: a number by itself; that of an earlier model was set to 0 before the generation
  model.precision.store(precision, std::memory_order_relaxed);
}

std::atomic<uint64_t>& Counters::live_sequences(uint32_t index) noexcept {
  return at<RegionModel>(region_, RegionLayout::kModels)[index].live_sequences;
}

void Counters::release_model(uint32_t index) noexcept {
  // sync[counters.model]: acquire, so that nothing is cleared before a reader in another process
  // can see the 0
  at<RegionModel>(region_, RegionLayout::kModels)[index].generation.exchange(
      0, std::memory_order_acq_rel);
}

uint64_t Counters::generation(uint32_t index) const noexcept {
  if (index >= limits::kMaxModels) return 0;
  // relaxed: the caller holds the model, or is told a number that no reader finds
  return at<RegionModel>(region_, RegionLayout::kModels)[index].generation.load(
      std::memory_order_relaxed);
}

CounterWriter::CounterWriter(Counters& counters, Stay stay) noexcept : counters_(counters) {
  for (;;) {
    for (size_t i = 0; i < Counters::kMaxWriters; ++i) {
      const bool is_long = stay == Stay::kLong;
      if (!take(is_long ? i : Counters::kMaxWriters - 1 - i)) continue;
      counters_.widen(row_, is_long);
      return;
    }
    LUMEN_CHECK(stay == Stay::kMoment);  // kMaxWriters has room for all that stay
    ::sched_yield();
  }
}

bool CounterWriter::take(size_t row) noexcept {
  std::atomic<WriterState>& state = counters_.states_[row];
  // relaxed: only whether it is worth trying
  WriterState seen = state.load(std::memory_order_relaxed);
  if (seen == WriterState::kTaken) return false;
  // sync[counters.row]: acquire; the counts of the writer before, from which this one goes on
  if (!state.compare_exchange_strong(seen, WriterState::kTaken, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
    return false;
  }
  RegionWriter& writer = counters_.writer(row);
  // relaxed, both: the row tells its last owner until it is another's; a reader that finds the row
  // unused leaves out the counts of the last moment
  writer.state.store(WriterState::kTaken, std::memory_order_relaxed);
  writer.role.store(WriterRole::kMoment, std::memory_order_relaxed);
  row_ = row;
  server_ = counters_.server_slots(row);
  models_ = reinterpret_cast<std::byte*>(counters_.model_slots(row, 0));
  section_bytes_ = RegionLayout(counters_.stages_.shards()).section_bytes;
  return true;
}

void CounterWriter::is_thread(WriterRole role, uint32_t number) noexcept {
  RegionWriter& writer = counters_.writer(row_);
  // relaxed, all: as in take()
  writer.number.store(number, std::memory_order_relaxed);
  writer.tid.store(static_cast<uint32_t>(::gettid()), std::memory_order_relaxed);
  writer.role.store(role, std::memory_order_relaxed);
}

ThreadTimes CounterWriter::thread_times() noexcept {
  return ThreadTimes(&server_[kThreadWords[0].index()]);
}

CounterWriter::~CounterWriter() {
  // relaxed: as in take()
  counters_.writer(row_).state.store(WriterState::kFree, std::memory_order_relaxed);
  // sync[counters.row]: release; the next writer goes on from these counts
  counters_.states_[row_].store(WriterState::kFree, std::memory_order_release);
}

}  // namespace lumen::telemetry
