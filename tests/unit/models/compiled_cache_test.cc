// Files of compiled models: damage, other users, room, several threads. And times of calls as text.
#include <lumen/models/compiled_cache.h>
#include <lumen/models/known_costs.h>

#include "support/temp_repository.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace lumen::models {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_in(const fs::path& folder) {
  return {fs::directory_iterator(folder), fs::directory_iterator()};
}

std::string read(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class CompiledModels : public testing::Test {
 protected:
  TempRepository files_;
  fs::path folder_ = files_.path() / "cache" / "compiled";
  CompiledCache cache_{folder_};
};

TEST_F(CompiledModels, AreFoundByTheirIdentityAndNoOther) {
  EXPECT_FALSE(cache_.find("one").has_value());
  cache_.put("one", "compiled one");
  cache_.put("two", "");
  EXPECT_EQ(cache_.find("one"), "compiled one");
  EXPECT_EQ(cache_.find("two"), "");
  EXPECT_FALSE(cache_.find("three").has_value());
  EXPECT_EQ(CompiledCache(folder_).find("one"), "compiled one") << "the next start";
  cache_.put("one", "compiled again");
  EXPECT_EQ(cache_.find("one"), "compiled again");
  cache_.remove("one");
  EXPECT_FALSE(cache_.find("one").has_value());
  // A file under the name of another identity is not that one's.
  write(files_in(folder_).front().parent_path() / "x", "");
  cache_.put("one", "compiled one");
  cache_.remove("two");
  fs::remove(folder_ / "x");
  const fs::path of_one = files_in(folder_).front();
  const std::string bytes = read(of_one);
  cache_.put("two", "compiled two");
  for (const fs::path& path : files_in(folder_)) write(path, bytes);
  EXPECT_FALSE(cache_.find("two").has_value());
  EXPECT_EQ(cache_.find("one"), "compiled one");
}

TEST_F(CompiledModels, AChangedByteACutAndAnAddedByteAreDamage) {
  cache_.put("identity", "some compiled bytes, so many that there are words");
  const fs::path path = files_in(folder_).front();
  const std::string whole = read(path);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    write(path, damaged);
    EXPECT_FALSE(cache_.find("identity").has_value()) << "byte " << i;
    write(path, whole.substr(0, i));
    EXPECT_FALSE(cache_.find("identity").has_value()) << "cut to " << i;
  }
  write(path, whole + "x");
  EXPECT_FALSE(cache_.find("identity").has_value());
  write(path, whole);
  EXPECT_TRUE(cache_.find("identity").has_value());
}

TEST_F(CompiledModels, FilesThatOthersMayWriteAreNotRead) {
  cache_.put("identity", "bytes");
  const fs::path path = files_in(folder_).front();
  struct stat about{};
  ASSERT_EQ(::stat(folder_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777u, 0700u);
  ASSERT_EQ(::stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777u, 0600u);
  ASSERT_EQ(::chmod(path.c_str(), 0620), 0);
  EXPECT_FALSE(cache_.find("identity").has_value());
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  ASSERT_EQ(::chmod(folder_.c_str(), 0702), 0);
  EXPECT_FALSE(cache_.find("identity").has_value());
  cache_.put("another", "bytes");
  EXPECT_EQ(files_in(folder_).size(), 1u) << "nor written";
  ASSERT_EQ(::chmod(folder_.c_str(), 0700), 0);
  EXPECT_TRUE(cache_.find("identity").has_value());
  const fs::path moved = files_.path() / "moved";
  fs::rename(path, moved);
  fs::create_symlink(moved, path);
  EXPECT_FALSE(cache_.find("identity").has_value());
  const fs::path elsewhere = files_.path() / "elsewhere";
  fs::rename(folder_, elsewhere);
  fs::create_symlink(elsewhere, folder_);
  fs::remove(elsewhere / path.filename());
  fs::rename(moved, elsewhere / path.filename());
  EXPECT_FALSE(cache_.find("identity").has_value()) << "the folder is a link";
}

TEST_F(CompiledModels, TheLeastRecentlyUsedMakeRoom) {
  CompiledCache small(folder_, 4'000);
  const std::string bytes(900, 'b');
  const auto age = [&](const std::string& of_content) {
    for (const fs::path& path : files_in(folder_)) {
      if (read(path).find(of_content) == std::string::npos) continue;
      fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
    }
  };
  for (const char* name : {"a", "b", "c", "d"}) small.put(name, bytes + name);
  age(bytes + "a");
  age(bytes + "b");
  EXPECT_TRUE(small.find("a").has_value());  // used now
  small.put("e", bytes + "e");
  EXPECT_FALSE(small.find("b").has_value());
  for (const char* name : {"a", "c", "d", "e"}) EXPECT_TRUE(small.find(name).has_value()) << name;
  small.put("large", std::string(5'000, 'x'));
  EXPECT_FALSE(small.find("large").has_value()) << "larger than all may be";
  EXPECT_TRUE(small.find("e").has_value());
}

TEST_F(CompiledModels, AFolderThatCannotBeMadeKeepsNothing) {
  files_.write("file", "");
  CompiledCache below_a_file(files_.path() / "file" / "compiled");
  below_a_file.put("identity", "bytes");
  EXPECT_FALSE(below_a_file.find("identity").has_value());
  CompiledCache nowhere("");
  nowhere.put("identity", "bytes");
  EXPECT_FALSE(nowhere.find("identity").has_value());
}

TEST_F(CompiledModels, SeveralThreadsReadWholeFiles) {
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 50; ++i) {
        const std::string identity = std::to_string((thread + i) % 5);
        cache_.put(identity, std::string(1000, 'x') + identity);
        const auto found = cache_.find(identity);
        ASSERT_TRUE(found.has_value());
        ASSERT_EQ(*found, std::string(1000, 'x') + identity);
      }
    });
  }
  for (std::thread& one : threads) one.join();
  EXPECT_EQ(files_in(folder_).size(), 5u) << "no file is left half-written";
}

TEST(KnownCostsAsText, AreTheSameAgain) {
  KnownCosts costs;
  EXPECT_EQ(parse_known_costs(to_text(costs)), costs);
  costs.request = {.ns = 1234, .input_bytes = 64};
  costs.gains_by_packing = {{2, false}, {4, true}};
  costs.sizes[{2, 4}] = {{1, 1000}, {2, 1500}, {4, 1600}};
  costs.sizes[{2, 4, 0}] = {};
  EXPECT_EQ(parse_known_costs(to_text(costs)), costs);
}

TEST(KnownCostsAsText, OfAnotherFormAreNone) {
  for (const char* text :
       {"", "1", "{}", R"({"gains_by_packing": [], "sizes": 1})",
        R"({"gains_by_packing": [{"rows": "a", "gains": true}], "sizes": []})",
        R"({"gains_by_packing": [], "sizes": [{"sizes": [2], "costs": [{"rows": 0, "ns": 1}]}]})",
        R"({"gains_by_packing": [], "sizes": [{"sizes": [2], "costs": [{"rows": 2, "ns": 0}]}]})",
        R"({"gains_by_packing": [], "sizes": [], "request": {"ns": 0, "input_bytes": 1}})",
        R"({"gains_by_packing": [], "sizes": [], "request": {"ns": "1"}})"}) {
    EXPECT_FALSE(parse_known_costs(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace lumen::models
