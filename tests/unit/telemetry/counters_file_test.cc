// The counters as a file: where it is, which users may have it, that a full or cut file kills
// nobody, that a dead server's is told apart.
// Threads: one. Memory: files in a folder of its own below /dev/shm. Errors: by gtest.
#include <lumen/telemetry/counters.h>
#include <lumen/telemetry/counters_file.h>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

namespace lumen::telemetry {
namespace {

class CountersFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/dev/shm/lumen-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
    path = folder + "/a.counters";
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  struct Published {
    std::unique_ptr<CountersFile> file;
    std::unique_ptr<Counters> counters;
  };
  [[nodiscard]] Result<Published> publish() const {
    auto file = CountersFile::create(path, Counters::bytes_for(1));
    if (!file.ok()) return file.status();
    auto counters = Counters::create(**file, {});
    if (!counters.ok()) return counters.status();
    return Published{std::move(*file), std::move(*counters)};
  }
  [[nodiscard]] bool is_locked() const {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return fd.valid() && ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0;
  }
  [[nodiscard]] size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
  }

  std::string folder;
  std::string path;
};

TEST_F(CountersFileTest, CountsAreInTheFileAndTheFileGoesWithItsServer) {
  {
    auto made = publish();
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ(made->file->path(), path);
    EXPECT_TRUE(made->file->is_in_memory());
    ASSERT_TRUE(made->counters->assign_model(0, "mlp", "1").ok());
    CounterWriter writer(*made->counters);
    writer.add("requests", 5);
    struct stat found{};
    ASSERT_EQ(::stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0640u);
    EXPECT_EQ(static_cast<size_t>(found.st_size), Counters::bytes_for(1));
    EXPECT_TRUE(is_locked());
    EXPECT_EQ(files(), 1u) << "nothing is left of its making";
    std::ifstream in(path, std::ios::binary);
    RegionHead head;
    in.read(reinterpret_cast<char*>(&head), sizeof(head));
    EXPECT_EQ(head.magic, RegionHead::kMagic);
    uint64_t requests = 0;
    in.seekg(static_cast<std::streamoff>(head.server_slots.offset));
    in.read(reinterpret_cast<char*>(&requests), sizeof(requests));
    EXPECT_EQ(requests, 5u) << "the first slot of the first writer";
  }
  EXPECT_EQ(files(), 0u);
}

TEST_F(CountersFileTest, TheRoomOfAllThatIsWrittenIsTakenBeforeAndNoMore) {
  auto made = publish();
  ASSERT_TRUE(made.ok());
  const auto taken = [this] {
    struct stat found{};
    return ::stat(path.c_str(), &found) == 0 ? static_cast<size_t>(found.st_blocks) * 512 : 0;
  };
  const size_t before = taken();
  RegionHead head;
  std::memcpy(&head, made->counters->region().data(), sizeof(head));
  EXPECT_EQ(before, head.sections.offset) << "all but the sections";
  ASSERT_TRUE(made->counters->assign_model(4, "mlp", "1").ok());
  EXPECT_EQ(taken(), before + head.sections.stride) << "one section";
  CounterWriter writer(*made->counters);
  writer.add(4, "inference");
  EXPECT_EQ(taken(), before + head.sections.stride);
}

TEST_F(CountersFileTest, ALiveServersFileIsLeftAloneAndADeadOnesIsReplaced) {
  auto first = publish();
  ASSERT_TRUE(first.ok());
  const auto second = publish();
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
  EXPECT_NE(second.status().message().find("live server"), std::string_view::npos);
  EXPECT_TRUE(is_locked());
  EXPECT_EQ(files(), 1u);
  // As kill -9 leaves it: the file without its lock.
  const std::string kept = folder + "/kept";
  std::filesystem::copy_file(path, kept);
  first->counters.reset();
  first->file.reset();
  std::filesystem::rename(kept, path);
  EXPECT_FALSE(is_locked());
  auto third = publish();
  ASSERT_TRUE(third.ok()) << third.status().message();
  EXPECT_TRUE(is_locked());
}

TEST_F(CountersFileTest, OfTheDeadTheNewestTwoAreKeptAndOthersFilesAreLeftAlone) {
  for (int i = 1; i <= 4; ++i) {
    const std::string name = folder + "/lumen-" + std::to_string(i) + ".counters";
    std::ofstream(name) << i;
    std::filesystem::last_write_time(
        name, std::filesystem::file_time_type(std::chrono::hours(24 * 365 * 50 + i)));
  }
  std::ofstream(folder + "/other.counters") << "x";
  path = folder + "/lumen-5.counters";
  auto live = publish();
  ASSERT_TRUE(live.ok());
  remove_old_counters_files(path);
  for (const char* kept : {"lumen-3", "lumen-4", "lumen-5", "other"}) {
    EXPECT_TRUE(std::filesystem::exists(folder + "/" + kept + ".counters")) << kept;
  }
  EXPECT_EQ(files(), 4u);
}

TEST_F(CountersFileTest, AFileThatIsNoneOfOursIsLeftAlone) {
  std::ofstream(path) << "a letter to my mother";
  const auto refused = publish();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("no counters file"), std::string_view::npos);
  EXPECT_EQ(std::filesystem::file_size(path), 21u);
  EXPECT_EQ(files(), 1u);
}

TEST_F(CountersFileTest, ALinkAtItsPlaceIsNotFollowed) {
  const std::string target = folder + "/target";
  std::ofstream(target) << "precious";
  std::filesystem::create_symlink(target, path);
  EXPECT_FALSE(publish().ok());
  EXPECT_EQ(std::filesystem::file_size(target), 8u);
}

TEST_F(CountersFileTest, AFolderThatIsNotThereIsSaid) {
  path = folder + "/none/a.counters";
  const auto refused = publish();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find(path), std::string_view::npos);
  EXPECT_NE(refused.status().message().find("--stats off"), std::string_view::npos);
}

TEST_F(CountersFileTest, TruncatingItCostsTheCountsNotTheServer) {
  auto made = publish();
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE(made->counters->assign_model(1, "mlp", "1").ok());
  CounterWriter writer(*made->counters);
  writer.add("requests", 5);
  writer.add("connections_open", 2);
  writer.add(1, "inference", 7);
  EXPECT_FALSE(made->file->was_truncated());
  ASSERT_EQ(::truncate(path.c_str(), 0), 0);
  writer.add("requests", 1);
  writer.add(1, "inference", 3);
  writer.subtract("connections_open", 2);
  RequestRecord record;
  record.model = 1;
  record.stage_ns.fill(40);
  made->counters->stages().record(record);
  EXPECT_TRUE(made->file->was_truncated());
  EXPECT_EQ(made->counters->total("requests"), 1u) << "from zero on";
  EXPECT_EQ(made->counters->total(1, "inference"), 3u);
  EXPECT_EQ(made->counters->total("connections_open"), 0u) << "not 2^64 - 2";
  EXPECT_EQ(made->counters->stages().of(1, Stage::kTotal).count(), 1u);
  // A model that comes now.
  EXPECT_TRUE(made->counters->assign_model(2, "late", "1").ok());
  writer.add(2, "inference");
  EXPECT_EQ(made->counters->total(2, "inference"), 1u);
}

TEST(CountersFile, ItsUsualPlaceNamesTheProcess) {
  const std::string pid = std::to_string(::getpid());
  ::setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_EQ(default_counters_path(), "/run/user/7/lumen-" + pid + ".counters");
  const std::string fallback =
      "/dev/shm/lumen-" + std::to_string(::geteuid()) + "-" + pid + ".counters";
  ::setenv("XDG_RUNTIME_DIR", "relative", 1);
  EXPECT_EQ(default_counters_path(), fallback);
  ::unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(default_counters_path(), fallback);
}

}  // namespace
}  // namespace lumen::telemetry
