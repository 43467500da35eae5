// Reading by pread, each place checked. See the header for threads, memory and errors.
#include <lumen/telemetry/counters_reader.h>

#include <lumen/telemetry/counter_table.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lumen::telemetry {
namespace {

// A table of a true file has at most 640 entries, of at most 18 MB (the section of a model with 64
// I/O threads). A size far beyond that is no table's, and would have us read for minutes.
constexpr uint32_t kMostEntries = 4096;
constexpr uint32_t kMostStride = 64u << 20;
// Of slots: 256 models with 640 writers and two counters are a third. At 0.3 us each this is 0.3 s.
constexpr uint64_t kMostReads = 1'000'000;

// The bytes in the file of a struct that has atomics in memory.
struct ModelEntry {
  uint64_t generation = 0;
  char name[sizeof(RegionModel::name)] = {};
  char version[sizeof(RegionModel::version)] = {};
};
static_assert(offsetof(ModelEntry, name) == offsetof(RegionModel, name) &&
              offsetof(ModelEntry, version) == offsetof(RegionModel, version));

template <size_t kSize>
std::string_view text_of(const char (&room)[kSize]) noexcept {
  return {room, ::strnlen(room, kSize)};
}

}  // namespace

Result<CountersReader> CountersReader::open(const std::filesystem::path& path) {
  CountersReader reader(path);
  // O_NONBLOCK: a FIFO of that name would hold us.
  reader.fd_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat found{};
  if (!reader.fd_.valid() || ::fstat(reader.fd_.get(), &found) != 0) {
    return Status::from_errno(errno, "counters file %s", path.c_str());
  }
  if (!S_ISREG(found.st_mode)) {
    return Status::error(Code::kInvalidArgument, "counters file %s: it is no regular file",
                         path.c_str());
  }
  reader.user_ = found.st_uid;
  return reader;
}

Status CountersReader::read_head() {
  LUMEN_RETURN_IF_ERROR(read(&head_, sizeof(head_), 0, "its head"));
  if (head_.magic != RegionHead::kMagic || head_.version != RegionHead::kVersion) {
    return Status::error(Code::kUnsupported,
                         "counters file %s: got version %u or another kind of file, wanted %u",
                         path_.c_str(), head_.version, RegionHead::kVersion);
  }
  return check_tables();
}

bool CountersReader::is_of_live_server() const noexcept {
  if (::flock(fd_.get(), LOCK_SH | LOCK_NB) != 0) return errno == EWOULDBLOCK;
  (void)::flock(fd_.get(), LOCK_UN);
  return false;
}

Status CountersReader::read(void* to, size_t bytes, uint64_t offset, const char* what) const {
  ssize_t got = -1;
  if (offset <= static_cast<uint64_t>(INT64_MAX)) {
    do {
      got = ::pread(fd_.get(), to, bytes, static_cast<off_t>(offset));
    } while (got < 0 && errno == EINTR);
    if (got < 0) return Status::from_errno(errno, "counters file %s: %s", path_.c_str(), what);
  }
  if (got == static_cast<ssize_t>(bytes)) return {};
  return Status::error(Code::kInvalidArgument, "counters file %s: it ends before %s", path_.c_str(),
                       what);
}

Status CountersReader::check(const RegionTable& table, size_t entry_bytes, const char* what) const {
  const bool is_good = table.count <= kMostEntries && table.stride <= kMostStride &&
                       table.stride >= entry_bytes && table.stride % 8 == 0 &&
                       table.offset % 8 == 0 && table.offset <= head_.bytes &&
                       uint64_t{table.count} * table.stride <= head_.bytes - table.offset;
  if (is_good) return {};
  return Status::error(Code::kInvalidArgument,
                       "counters file %s: %s: got %u entries of %u bytes at %llu, which no file "
                       "of %llu bytes has",
                       path_.c_str(), what, table.count, table.stride,
                       static_cast<unsigned long long>(table.offset),
                       static_cast<unsigned long long>(head_.bytes));
}

Status CountersReader::check_tables() const {
  LUMEN_RETURN_IF_ERROR(
      check(head_.model_descriptors, sizeof(RegionDescriptor), "the table of descriptors"));
  LUMEN_RETURN_IF_ERROR(check(head_.models, sizeof(RegionModel), "the table of models"));
  LUMEN_RETURN_IF_ERROR(check(head_.writers, sizeof(RegionWriter), "the table of writers"));
  LUMEN_RETURN_IF_ERROR(check(head_.sections, 8, "the table of sections"));
  const uint64_t slot_bytes = uint64_t{head_.model_descriptors.count} * sizeof(uint64_t);
  LUMEN_RETURN_IF_ERROR(check(head_.section_slots, slot_bytes, "a model's slots"));
  const RegionTable& slots = head_.section_slots;
  const bool fits = head_.models.count <= head_.sections.count &&
                    head_.writers.count <= slots.count && slots.offset <= head_.sections.stride &&
                    uint64_t{slots.count} * slots.stride <= head_.sections.stride - slots.offset;
  if (fits) return {};
  return Status::error(Code::kInvalidArgument,
                       "counters file %s: its sections have no room for the rows of its tables",
                       path_.c_str());
}

Result<std::vector<CountersReader::Place>> CountersReader::places_of(
    std::span<const std::string_view> counters) const {
  std::vector<Place> places(counters.size());
  for (uint32_t i = 0; i < head_.model_descriptors.count; ++i) {
    RegionDescriptor one;
    const uint64_t offset =
        head_.model_descriptors.offset + uint64_t{i} * head_.model_descriptors.stride;
    LUMEN_RETURN_IF_ERROR(read(&one, sizeof(one), offset, "a descriptor"));
    const auto wanted = std::ranges::find(counters, text_of(one.name));
    if (wanted == counters.end()) continue;
    places[static_cast<size_t>(wanted - counters.begin())] = {.index = i, .kind = one.kind};
  }
  return places;
}

Result<std::vector<uint32_t>> CountersReader::used_writers() const {
  std::vector<uint32_t> used;
  for (uint32_t i = 0; i < head_.writers.count; ++i) {
    uint32_t state = 0;
    const uint64_t offset = head_.writers.offset + uint64_t{i} * head_.writers.stride;
    LUMEN_RETURN_IF_ERROR(read(&state, sizeof(state), offset, "a writer"));
    if (state != static_cast<uint32_t>(WriterState::kUnused)) used.push_back(i);
  }
  return used;
}

Result<uint64_t> CountersReader::generation_of(uint32_t model) const {
  uint64_t generation = 0;
  const uint64_t offset = head_.models.offset + uint64_t{model} * head_.models.stride;
  LUMEN_RETURN_IF_ERROR(read(&generation, sizeof(generation), offset, "a model"));
  return generation;
}

Result<std::vector<uint64_t>> CountersReader::totals_of(uint32_t model,
                                                        std::span<const Place> places,
                                                        std::span<const uint32_t> writers) const {
  std::vector<uint64_t> totals(places.size(), 0);
  const uint64_t section =
      head_.sections.offset + uint64_t{model} * head_.sections.stride + head_.section_slots.offset;
  for (const uint32_t writer : writers) {
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i].index == Place::kNone) continue;
      uint64_t value = 0;
      const uint64_t offset = section + uint64_t{writer} * head_.section_slots.stride +
                              uint64_t{places[i].index} * sizeof(value);
      LUMEN_RETURN_IF_ERROR(read(&value, sizeof(value), offset, "a slot"));
      totals[i] += value;
    }
  }
  // Below zero if a subtraction was seen and its addition was not.
  for (size_t i = 0; i < places.size(); ++i) {
    const bool is_gauge = places[i].kind == static_cast<uint32_t>(CounterKind::kGauge);
    if (is_gauge && static_cast<int64_t>(totals[i]) < 0) totals[i] = 0;
  }
  return totals;
}

Result<std::vector<CountersReader::ModelTotals>> CountersReader::models(
    std::span<const std::string_view> counters) {
  LUMEN_RETURN_IF_ERROR(read_head());
  const Result<std::vector<Place>> places = places_of(counters);
  if (!places.ok()) return places.status();
  const Result<std::vector<uint32_t>> writers = used_writers();
  if (!writers.ok()) return writers.status();
  std::vector<ModelTotals> found;
  uint64_t reads = 0;
  for (uint32_t i = 0; i < head_.models.count; ++i) {
    ModelEntry entry;
    const uint64_t offset = head_.models.offset + uint64_t{i} * head_.models.stride;
    LUMEN_RETURN_IF_ERROR(read(&entry, sizeof(entry), offset, "a model"));
    if (entry.generation == 0) continue;
    reads += writers->size() * counters.size();
    if (reads > kMostReads) {
      return Status::error(Code::kTooLarge, "counters file %s: it has more models than are read",
                           path_.c_str());
    }
    Result<std::vector<uint64_t>> totals = totals_of(i, *places, *writers);
    if (!totals.ok()) return totals.status();
    const Result<uint64_t> after = generation_of(i);
    if (!after.ok()) return after.status();
    if (*after != entry.generation) continue;
    found.push_back({.name = std::string(text_of(entry.name)),
                     .version = std::string(text_of(entry.version)),
                     .totals = std::move(*totals)});
  }
  return found;
}

}  // namespace lumen::telemetry
