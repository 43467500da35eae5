// The reader of another process's counters file: the figures of a true one, and that no bytes hurt
// it.
// Threads: one. Memory: files in a folder of its own below /dev/shm. Errors: by gtest.
#include <lumen/telemetry/counters.h>
#include <lumen/telemetry/counters_file.h>
#include <lumen/telemetry/counters_reader.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace lumen::telemetry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::array<std::string_view, 3> kNames = {"instances", "not_there", "inference"};

class CountersReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/dev/shm/lumen-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
    path = folder + "/a.counters";
    auto made = CountersFile::create(path, Counters::bytes_for(1));
    ASSERT_TRUE(made.ok()) << made.status().message();
    file = std::move(*made);
    auto counting = Counters::create(*file, {});
    ASSERT_TRUE(counting.ok()) << counting.status().message();
    counters = std::move(*counting);
    ASSERT_TRUE(counters->assign_model(0, "mlp", "1").ok());
    ASSERT_TRUE(counters->assign_model(3, "squeezenet", "12").ok());
  }
  void TearDown() override {
    counters.reset();
    file.reset();
    std::filesystem::remove_all(folder);
  }

  [[nodiscard]] static Result<std::vector<CountersReader::ModelTotals>> read(
      const std::string& from) {
    auto reader = CountersReader::open(from);
    if (!reader.ok()) return reader.status();
    return reader->models(kNames);
  }
  [[nodiscard]] static std::string refusal_of(const std::string& from) {
    const auto models = read(from);
    return models.ok() ? std::string("read") : std::string(models.status().message());
  }
  // A copy of which `bytes` at `offset` are others.
  template <typename T>
  [[nodiscard]] std::string with(size_t offset, T value) const {
    const std::string changed = folder + "/changed";
    std::filesystem::copy_file(path, changed, std::filesystem::copy_options::overwrite_existing);
    std::fstream out(changed, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(offset));
    out.write(reinterpret_cast<const char*>(&value), sizeof(value));
    return changed;
  }

  std::string folder;
  std::string path;
  std::unique_ptr<CountersFile> file;
  std::unique_ptr<Counters> counters;
};

TEST_F(CountersReaderTest, FindsEachModelsTotalsOverAllWritersByTheirNames) {
  CounterWriter one(*counters);
  CounterWriter other(*counters);
  CounterWriter moment(*counters, CounterWriter::Stay::kMoment);
  one.add(0, "inference", 5);
  other.add(0, "inference", 7);
  moment.set_gauge(0, "instances", 2);
  moment.set_gauge(3, "instances", 4);
  const auto models = read(path);
  ASSERT_TRUE(models.ok()) << models.status().message();
  ASSERT_EQ(models->size(), 2u);
  EXPECT_EQ((*models)[0].name, "mlp");
  EXPECT_EQ((*models)[0].version, "1");
  EXPECT_THAT((*models)[0].totals, ElementsAre(2, 0, 12));
  EXPECT_EQ((*models)[1].name, "squeezenet");
  EXPECT_EQ((*models)[1].version, "12");
  EXPECT_THAT((*models)[1].totals, ElementsAre(4, 0, 0));
}

TEST_F(CountersReaderTest, LeavesOutAModelThatIsGone) {
  counters->release_model(0);
  const auto models = read(path);
  ASSERT_TRUE(models.ok());
  ASSERT_EQ(models->size(), 1u);
  EXPECT_EQ((*models)[0].name, "squeezenet");
}

TEST_F(CountersReaderTest, AGaugeOfWhichOnlyTheFallIsSeenIsZero) {
  CounterWriter writer(*counters);
  writer.set_gauge(0, "instances", uint64_t{0} - 3);
  const auto models = read(path);
  ASSERT_TRUE(models.ok());
  EXPECT_EQ((*models)[0].totals[0], 0u);
}

TEST_F(CountersReaderTest, TellsALiveServersFileFromADeadOnes) {
  auto live = CountersReader::open(path);
  ASSERT_TRUE(live.ok());
  EXPECT_TRUE(live->is_of_live_server());
  EXPECT_EQ(live->user(), ::geteuid());
  auto dead = CountersReader::open(with(0, RegionHead::kMagic));
  ASSERT_TRUE(dead.ok());
  EXPECT_FALSE(dead->is_of_live_server());
}

TEST_F(CountersReaderTest, OpensRegularFilesAlone) {
  EXPECT_THAT(refusal_of(folder), HasSubstr("no regular file"));
  EXPECT_THAT(refusal_of(folder + "/missing"), HasSubstr("No such file"));
  const std::string fifo = folder + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(refusal_of(fifo), HasSubstr("no regular file"));
  const std::string link = folder + "/link";
  std::filesystem::create_symlink(path, link);
  EXPECT_THAT(refusal_of(link), HasSubstr(link));
}

TEST_F(CountersReaderTest, RefusesAnotherKindOrVersion) {
  EXPECT_THAT(refusal_of(with(0, uint64_t{7})), HasSubstr("wanted 2"));
  EXPECT_THAT(refusal_of(with(8, uint32_t{3})), HasSubstr("got version 3"));
}

TEST_F(CountersReaderTest, AFileThatEndsAnywhereIsRefusedOrRead) {
  const CounterWriter writer(*counters);  // of the first row, whose slots are at a section's begin
  const std::string cut = folder + "/cut";
  std::filesystem::copy_file(path, cut);
  for (const size_t bytes : {size_t{0}, size_t{1}, sizeof(RegionHead) - 1, sizeof(RegionHead),
                             size_t{4096}, size_t{20'000}, size_t{100'000}}) {
    std::filesystem::resize_file(cut, bytes);
    EXPECT_THAT(refusal_of(cut), HasSubstr("it ends before")) << bytes;
    std::filesystem::resize_file(cut, std::filesystem::file_size(path));
    std::filesystem::copy_file(path, cut, std::filesystem::copy_options::overwrite_existing);
  }
}

TEST_F(CountersReaderTest, RefusesTablesThatDoNotFit) {
  for (const size_t table : {offsetof(RegionHead, model_descriptors), offsetof(RegionHead, models),
                             offsetof(RegionHead, writers), offsetof(RegionHead, sections),
                             offsetof(RegionHead, section_slots)}) {
    const size_t stride = table + offsetof(RegionTable, stride);
    const size_t count = table + offsetof(RegionTable, count);
    EXPECT_NE(refusal_of(with(table, UINT64_MAX)), "read");
    EXPECT_NE(refusal_of(with(table, UINT64_MAX - 7)), "read");
    EXPECT_NE(refusal_of(with(table, uint64_t{1} << 62)), "read");
    EXPECT_NE(refusal_of(with(table, uint64_t{3})), "read") << "not aligned";
    EXPECT_NE(refusal_of(with(stride, uint32_t{0})), "read");
    EXPECT_NE(refusal_of(with(stride, UINT32_MAX)), "read");
    EXPECT_NE(refusal_of(with(stride, UINT32_MAX - 7)), "read");
    EXPECT_NE(refusal_of(with(count, UINT32_MAX)), "read");
  }
  EXPECT_NE(refusal_of(with(offsetof(RegionHead, bytes), uint64_t{0})), "read");
}

TEST_F(CountersReaderTest, TextsWithoutAnEndEndWithTheirRoom) {
  RegionHead head;
  std::memcpy(&head, counters->region().data(), sizeof(head));
  std::array<char, sizeof(RegionModel::name)> full;
  full.fill('x');
  const auto models = read(with(head.models.offset + offsetof(RegionModel, name), full));
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_EQ((*models)[0].name, std::string(full.size(), 'x'));
}

TEST_F(CountersReaderTest, NoHeadOfRandomWordsHurtsIt) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const std::string hostile = folder + "/hostile";
  std::filesystem::copy_file(path, hostile);
  const int fd = ::open(hostile.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  RegionHead good;
  std::memcpy(&good, counters->region().data(), sizeof(good));
  for (int round = 0; round < 2000; ++round) {
    RegionHead head = good;
    auto* words = reinterpret_cast<uint32_t*>(&head);
    for (int i = 0; i < 3; ++i) {
      // Behind magic and version; sometimes a value that is nearly right.
      const size_t at = 3 + random() % (sizeof(head) / sizeof(uint32_t) - 3);
      words[at] = random() % 2 == 0 ? static_cast<uint32_t>(random())
                                    : words[at] + static_cast<uint32_t>(random() % 17) - 8;
    }
    ASSERT_EQ(::pwrite(fd, &head, sizeof(head), 0), static_cast<ssize_t>(sizeof(head)));
    (void)read(hostile);
  }
  ::close(fd);
}

}  // namespace
}  // namespace lumen::telemetry
