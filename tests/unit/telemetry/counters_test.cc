// Counters: totals over writers that come and go, rows that are handed on, slots that are used
// again for another model, and the region as another process reads it.
// Threads: writers and a reader. Memory: a region each. Errors: by gtest.
#include <lumen/telemetry/counters.h>

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace lumen::telemetry {
namespace {

WriterState state_of(const Counters& counters, size_t row) {
  RegionHead head;
  std::memcpy(&head, counters.region().data(), sizeof(head));
  WriterState state{};
  std::memcpy(&state, counters.region().data() + head.writers.offset + row * head.writers.stride,
              sizeof(state));
  return state;
}

TEST(Counters, ATotalIsTheSumOverAllWriters) {
  Counters counters;
  CounterWriter one(counters);
  CounterWriter other(counters);
  one.add("requests");
  other.add("requests", 41);
  one.add(7, "inference", 3);
  other.add(7, "inference", 4);
  other.add(8, "inference");
  other.add_time(7, "queue", 500);
  EXPECT_EQ(counters.total("requests"), 42u);
  EXPECT_EQ(counters.total("cancelled"), 0u);
  EXPECT_EQ(counters.total(7, "inference"), 7u);
  EXPECT_EQ(counters.total(8, "inference"), 1u);
  EXPECT_EQ(counters.total(7, "queue"), 1u);
  EXPECT_EQ(counters.total(7, "queue_ns"), 500u);
  EXPECT_EQ(ModelCounters(counters, 8).total("inference"), 1u);
}

TEST(Counters, AGaugeGoesDownAlsoByAnotherWriterThanTheOneThatRaisedIt) {
  Counters counters;
  CounterWriter one(counters);
  CounterWriter other(counters);
  one.add("connections_open", 3);
  other.subtract("connections_open", 2);
  EXPECT_EQ(counters.total("connections_open"), 1u);
}

TEST(Counters, OfATimeTheLatestCounts) {
  Counters counters;
  CounterWriter one(counters);
  CounterWriter other(counters);
  one.set(0, "last_inference", 2000);
  other.set(0, "last_inference", 1000);
  EXPECT_EQ(counters.total(0, "last_inference"), 2000u);
}

TEST(Counters, ARowGoesOnFromTheCountsOfItsLastWriter) {
  Counters counters;
  for (int i = 0; i < 10; ++i) {
    CounterWriter writer(counters);
    writer.add("requests");
    EXPECT_EQ(counters.total("requests"), static_cast<uint64_t>(i) + 1);
  }
  EXPECT_EQ(counters.total("requests"), 10u) << "it stays when its writers are gone";
  EXPECT_EQ(state_of(counters, 0), WriterState::kFree);
  EXPECT_EQ(state_of(counters, 1), WriterState::kUnused) << "one row was enough for all";
}

TEST(Counters, WritersForAMomentUseTheOtherEndAndFindARowWhenOneIsLeft) {
  Counters counters;
  CounterWriter(counters, CounterWriter::Stay::kMoment).add("requests");
  EXPECT_EQ(state_of(counters, Counters::kMaxWriters - 1), WriterState::kFree);
  EXPECT_EQ(state_of(counters, 0), WriterState::kUnused);
  std::vector<std::unique_ptr<CounterWriter>> writers;
  for (size_t i = 0; i + 1 < Counters::kMaxWriters; ++i) {
    writers.push_back(std::make_unique<CounterWriter>(counters));
    writers.back()->add("requests");
  }
  CounterWriter(counters, CounterWriter::Stay::kMoment).add("requests");
  writers.push_back(std::make_unique<CounterWriter>(counters));
  EXPECT_EQ(counters.total("requests"), Counters::kMaxWriters + 1);
}

TEST(CountersDeathTest, OneWriterTooManyIsABug) {
  Counters counters;
  std::vector<std::unique_ptr<CounterWriter>> writers;
  writers.reserve(Counters::kMaxWriters);
  for (size_t i = 0; i < Counters::kMaxWriters; ++i) {
    writers.push_back(std::make_unique<CounterWriter>(counters));
  }
  EXPECT_DEATH(CounterWriter{counters}, "");
}

// Workers come and go as live changes have it, while backends' threads count for a moment and a
// reader looks.
TEST(Counters, NoTotalGoesDownAndNoneIsLostWhileWritersComeAndGo) {
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kLives = 200;
  constexpr uint64_t kEach = 100;
  Counters counters;
  std::atomic<uint64_t> ended{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto stay = t % 2 == 0 ? CounterWriter::Stay::kLong : CounterWriter::Stay::kMoment;
      for (uint64_t life = 0; life < kLives; ++life) {
        CounterWriter writer(counters, stay);
        for (uint64_t i = 0; i < kEach; ++i) {
          writer.add("requests");
          writer.add("connections_open");
          writer.add_time(1, "success", 3);
          writer.subtract("connections_open");
        }
      }
      ended.fetch_add(1);
    });
  }
  uint64_t requests = 0;
  uint64_t ns = 0;
  while (ended.load() < kThreads) {
    const uint64_t requests_now = counters.total("requests");
    const uint64_t ns_now = counters.total(1, "success_ns");
    ASSERT_GE(requests_now, requests);
    ASSERT_GE(ns_now, ns);
    requests = requests_now;
    ns = ns_now;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counters.total("requests"), kThreads * kLives * kEach);
  EXPECT_EQ(counters.total("connections_open"), 0u);
  EXPECT_EQ(counters.total(1, "success"), kThreads * kLives * kEach);
  EXPECT_EQ(counters.total(1, "success_ns"), 3 * kThreads * kLives * kEach);
}

// Short lives, so that nearly all that happens is taking and giving back. Each writer also counts
// in plain memory of its row, so that TSan sees whether it is handed on.
TEST(Counters, NoTwoWritersHaveOneRowAtATime) {
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kLives = 50'000;
  Counters counters;
  std::vector<uint64_t> plain(Counters::kMaxWriters);
  std::barrier begin(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      begin.arrive_and_wait();
      for (uint64_t life = 0; life < kLives; ++life) {
        CounterWriter writer(counters, CounterWriter::Stay::kMoment);
        writer.add("requests");
        ++plain[writer.row()];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counters.total("requests"), kThreads * kLives);
  EXPECT_EQ(std::accumulate(plain.begin(), plain.end(), uint64_t{0}), kThreads * kLives);
}

TEST(Counters, AnIndexUsedAgainForAnotherModelBeginsAtZeroAndLeavesTheOthers) {
  Counters counters;
  CounterWriter one(counters);
  CounterWriter other(counters);
  EXPECT_TRUE(counters.assign_model(0, "old", "1").ok());
  EXPECT_TRUE(counters.assign_model(1, "neighbour", "1").ok());
  RequestRecord record;
  record.stage_ns.fill(100);
  for (const uint32_t model : {0u, 1u}) {
    one.add_time(model, "success", 10);
    other.add(model, "inference", 5);
    other.set(model, "last_inference", 99);
    record.model = static_cast<uint16_t>(model);
    counters.stages().record(record);
  }
  one.add("requests", 2);
  counters.release_model(0);
  EXPECT_TRUE(counters.assign_model(0, "new", "1").ok());
  for (size_t i = 0; i < std::size(kModelCounters); ++i) {
    EXPECT_EQ(counters.total(0, ModelCounter(i)), 0u) << kModelCounters[i].name;
  }
  EXPECT_EQ(counters.stages().of(0, Stage::kTotal).count(), 0u);
  EXPECT_EQ(counters.total(1, "inference"), 5u);
  EXPECT_EQ(counters.stages().of(1, Stage::kTotal).count(), 1u);
  EXPECT_EQ(counters.total("requests"), 2u) << "the server's stay";
  one.add(0, "inference", 3);
  EXPECT_EQ(counters.total(0, "inference"), 3u);
}

// --- as another process reads it: by docs/formats/counters.md alone ------------------------------

class Reader {
 public:
  // A copy at another address.
  explicit Reader(std::span<const std::byte> region) : bytes_(region.begin(), region.end()) {}

  template <typename T>
  T get(uint64_t at) const {
    T value{};
    std::memcpy(&value, bytes_.data() + at, sizeof(value));
    return value;
  }
  std::string text(uint64_t at) const { return reinterpret_cast<const char*>(bytes_.data()) + at; }
  struct Table {
    uint64_t offset;
    uint32_t stride, count;
  };
  Table table(uint64_t at) const {
    return {get<uint64_t>(at), get<uint32_t>(at + 8), get<uint32_t>(at + 12)};
  }
  size_t size() const { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
};

struct Read {
  uint32_t kind = 0;
  std::string unit, series;
  uint64_t value = 0;
};

// The sum over all writers of a slot; `slots` has an entry for each.
uint64_t sum_over_writers(const Reader& reader, const Reader::Table& slots, uint64_t begin,
                          uint64_t slot, uint32_t kind) {
  const Reader::Table writers = reader.table(144);
  uint64_t sum = 0;
  for (uint32_t row = 0; row < writers.count; ++row) {
    if (reader.get<uint32_t>(writers.offset + uint64_t{row} * writers.stride) == 0) continue;
    const auto value =
        reader.get<uint64_t>(begin + slots.offset + uint64_t{row} * slots.stride + slot);
    sum = kind == 2 ? std::max(sum, value) : sum + value;
  }
  return sum;
}

// All counters of one table of descriptors; `begin`: where offsets of `slots` count from.
std::map<std::string, Read> read_all(const Reader& reader, uint64_t descriptors_at,
                                     uint64_t slots_at, uint64_t begin) {
  std::map<std::string, Read> all;
  const Reader::Table descriptors = reader.table(descriptors_at);
  const Reader::Table slots = reader.table(slots_at);
  for (uint32_t i = 0; i < descriptors.count; ++i) {
    const uint64_t at = descriptors.offset + uint64_t{i} * descriptors.stride;
    Read one{.kind = reader.get<uint32_t>(at),
             .unit = reader.text(at + 104),
             .series = reader.text(at + 40)};
    one.value = sum_over_writers(reader, slots, begin, uint64_t{i} * 8, one.kind);
    EXPECT_FALSE(reader.text(at + 120).empty());
    EXPECT_TRUE(all.emplace(reader.text(at + 8), one).second) << reader.text(at + 8);
  }
  return all;
}

TEST(CounterRegion, TellsWhoseItIs) {
  constexpr std::string_view kQueues[] = {"mpmc", "inline"};
  constexpr std::string_view kAllocators[] = {"standard"};
  Counters counters(Mapping::create(Counters::bytes_for(3)).value(),
                    {.shards = 3, .queue_types = kQueues, .allocator_types = kAllocators});
  CounterWriter writer(counters);
  writer.is_thread(WriterRole::kWorker, 7);
  const Reader reader(counters.region());
  EXPECT_EQ(reader.get<uint32_t>(24), static_cast<uint32_t>(::getpid()));
  EXPECT_EQ(reader.get<uint32_t>(28), 3u);
  EXPECT_GT(reader.get<uint64_t>(48), 0u) << "ticks since boot";
  EXPECT_FALSE(reader.text(56).empty()) << "Lumen's version";
  const Reader::Table writers = reader.table(144);
  EXPECT_EQ(reader.get<uint32_t>(writers.offset + 4), 2u);
  EXPECT_EQ(reader.get<uint32_t>(writers.offset + 8), 7u);
  EXPECT_EQ(reader.get<uint32_t>(writers.offset + 12), static_cast<uint32_t>(::gettid()));
  const Reader::Table queues = reader.table(288);
  EXPECT_EQ(queues.count, 2u);
  EXPECT_EQ(reader.text(queues.offset + queues.stride), "inline");
  const Reader::Table allocators = reader.table(304);
  EXPECT_EQ(reader.text(allocators.offset), "standard");
  const Reader::Table recent = reader.table(232);
  EXPECT_EQ(recent.count, 3u);
  EXPECT_GE(recent.stride, 64u + uint64_t{reader.get<uint32_t>(264)} * reader.get<uint32_t>(276));
  EXPECT_EQ(reader.table(208).count, 3 * kStageCount);
}

TEST(CounterRegion, TellsWhereAThreadsTimeGoes) {
  Counters counters;
  CounterWriter writer(counters);
  ThreadTimes times = writer.thread_times();
  times.begin(1'000);
  times.enter(ThreadState::kSpinning, 1'100);
  times.enter(ThreadState::kParked, 1'400);
  times.enter(ThreadState::kParked, 9'999);
  times.enter(ThreadState::kBusy, 2'000);
  times.enter(ThreadState::kSpinning, 2'007);
  EXPECT_EQ(counters.total("busy_ns"), 107u);
  EXPECT_EQ(counters.total("spin_ns"), 300u);
  EXPECT_EQ(counters.total("park_ns"), 600u);
  EXPECT_EQ(counters.total("thread_state"), 0u) << "it has no total";
  const Reader reader(counters.region());
  const uint64_t slots = reader.table(160).offset;
  EXPECT_EQ(reader.get<uint64_t>(slots + 8 * ServerCounter("thread_state").index()), 1u);
  EXPECT_EQ(reader.get<uint64_t>(slots + 8 * ServerCounter("thread_since_ns").index()), 2'007u);
}

TEST(Counters, AGaugeThatIsSeenBelowZeroForAMomentReadsAsZero) {
  Counters counters;
  CounterWriter worker(counters);
  worker.subtract(3, "queued");
  EXPECT_EQ(counters.total(3, "queued"), 0u);
  CounterWriter submitter(counters);
  submitter.add(3, "queued", 4);
  EXPECT_EQ(counters.total(3, "queued"), 3u);
}

TEST(CounterRegion, AnotherProcessReadsItByItsFormatAlone) {
  Counters counters;
  EXPECT_TRUE(counters.assign_model(3, "mlp", "12").ok());
  counters.set_precision(3, 4);
  counters.live_sequences(3).store(7);
  {
    CounterWriter ended(counters);
    ended.add("requests", 5);
    ended.add(3, "inference", 70);
  }
  CounterWriter writer(counters);
  CounterWriter second(counters);
  writer.add("requests", 6);
  second.add("connections_open", 2);
  second.add_time(3, "success", 900);
  writer.set(3, "last_inference", 5000);
  second.set(3, "last_inference", 4000);
  RequestRecord record;
  record.model = 3;
  record.stage_ns.fill(40);
  counters.stages().record(record);

  const Reader reader(counters.region());
  ASSERT_EQ(reader.text(0).substr(0, 8), "LMCNTNS1");
  ASSERT_EQ(reader.get<uint32_t>(8), 2u);
  EXPECT_EQ(reader.get<uint64_t>(16), reader.size());
  const auto server = read_all(reader, 80, 160, 0);
  EXPECT_EQ(server.size(), std::size(kServerCounters));
  EXPECT_EQ(server.at("requests").value, 11u);
  EXPECT_EQ(server.at("requests").series, "lumen_requests_total");
  EXPECT_EQ(server.at("sent_bytes").unit, "bytes");
  EXPECT_EQ(server.at("connections_open").kind, 1u);
  EXPECT_EQ(server.at("connections_open").value, 2u);

  const Reader::Table models = reader.table(128);
  uint32_t found = 0;
  for (uint32_t index = 0; index < models.count; ++index) {
    const uint64_t entry = models.offset + uint64_t{index} * models.stride;
    if (reader.get<uint64_t>(entry) == 0) continue;
    ++found;
    EXPECT_EQ(index, 3u);
    EXPECT_EQ(reader.text(entry + 8), "mlp");
    EXPECT_EQ(reader.text(entry + 144), "12");
    EXPECT_EQ(reader.get<uint32_t>(entry + 168), 4u);
    EXPECT_EQ(reader.get<uint64_t>(entry + 176), 7u);
  }
  EXPECT_EQ(found, 1u);
  const Reader::Table sections = reader.table(176);
  const uint64_t section = sections.offset + uint64_t{3} * sections.stride;
  const auto model = read_all(reader, 96, 192, section);
  EXPECT_EQ(model.size(), std::size(kModelCounters));
  EXPECT_EQ(model.at("inference").value, 70u);
  EXPECT_EQ(model.at("success").value, 1u);
  EXPECT_EQ(model.at("success_ns").value, 900u);
  EXPECT_EQ(model.at("last_inference").value, 5000u);

  const auto stages = reader.get<uint32_t>(12);
  EXPECT_EQ(stages, kStageCount);
  const Reader::Table names = reader.table(112);
  EXPECT_EQ(reader.text(names.offset + 7 * names.stride), "total");
  const Reader::Table histograms = reader.table(208);
  EXPECT_EQ(histograms.count, stages);
  const uint64_t total = section + histograms.offset + uint64_t{7} * histograms.stride;
  EXPECT_EQ(reader.get<uint64_t>(total), 40u) << "the sum";
  EXPECT_EQ(reader.get<uint64_t>(total + 64 + uint64_t{40} * 8), 1u) << "bucket 40";
  EXPECT_EQ(reader.get<uint32_t>(224), Histogram::kSubBits);
  EXPECT_EQ(reader.get<uint32_t>(228), Histogram::kValueBits);
}

TEST(CounterTable, EachCounterIsNamedOnceAndDescribed) {
  std::set<std::string_view> names, series;
  const auto look = [&](const CounterDescriptor& one) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    EXPECT_FALSE(one.unit.empty() || one.help.empty()) << one.name;
    if (one.series.empty()) return;
    EXPECT_TRUE(series.insert(one.series).second) << one.series;
    const std::string_view family = one.series.substr(0, one.series.find('{'));
    EXPECT_TRUE(family.starts_with("lumen_")) << one.name;
    EXPECT_EQ(family.ends_with("_total"), one.kind == CounterKind::kCounter) << one.name;
  };
  for (const CounterDescriptor& one : kServerCounters) look(one);
  for (const CounterDescriptor& one : kModelCounters) look(one);
}

}  // namespace
}  // namespace lumen::telemetry
