// A client's memory: the objects that are taken and refused, and one that is made shorter.
#include <lumen/service/shared_region.h>

#include <lumen/base/unique_fd.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>

namespace lumen::service {
namespace {

using testing::HasSubstr;

// A shared memory object of this process, until it ends.
class Object {
 public:
  explicit Object(size_t bytes, const std::string& part = "a")
      : key_("/test-region-" + std::to_string(::getpid()) + part),
        fd_(::shm_open(key_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600)) {
    EXPECT_TRUE(fd_.valid());
    resize(bytes);
  }
  ~Object() { ::shm_unlink(key_.c_str()); }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  void resize(size_t bytes) const {
    EXPECT_EQ(::ftruncate(fd_.get(), static_cast<off_t>(bytes)), 0);
  }
  void write(size_t at, std::string_view text) const {
    EXPECT_EQ(::pwrite(fd_.get(), text.data(), text.size(), static_cast<off_t>(at)),
              static_cast<ssize_t>(text.size()));
  }
  [[nodiscard]] const std::string& key() const { return key_; }

 private:
  const std::string key_;
  const UniqueFd fd_;
};

void expect_refused(const SharedRegion::Source& source, const char* words,
                    std::optional<uid_t> owner = ::geteuid()) {
  const auto region = SharedRegion::open(source, owner);
  ASSERT_FALSE(region.ok()) << source.key;
  EXPECT_THAT(std::string(region.status().message()), HasSubstr(words)) << source.key;
}

TEST(SharedRegion, ShowsTheBytesFromItsOffsetOn) {
  const Object object(3 * 4096);
  object.write(4090, "over two pages");
  for (const std::string& key : {object.key(), object.key().substr(1)}) {
    const auto region = SharedRegion::open({"r", key, 4090, 14}, ::geteuid());
    ASSERT_TRUE(region.ok()) << region.status().message();
    const auto part = (*region)->part(5, 9);
    ASSERT_TRUE(part.ok());
    EXPECT_EQ(std::memcmp(part->data(), "two pages", 9), 0);
    (*part)[0] = std::byte{'T'};
    EXPECT_EQ(std::memcmp((*region)->part(0, 14)->data(), "over Two", 8), 0);
    object.write(4090, "over two pages");
  }
}

TEST(SharedRegion, APlaceThatIsNotAllWithinItIsRefused) {
  const Object object(100);
  const auto region = SharedRegion::open({"r", object.key(), 10, 50}, ::geteuid());
  ASSERT_TRUE(region.ok()) << region.status().message();
  EXPECT_TRUE((*region)->part(0, 50).ok());
  EXPECT_TRUE((*region)->part(50, 0).ok());
  struct Row {
    uint64_t offset;
    uint64_t bytes;
  };
  for (const Row& row : {Row{0, 51},
                         {1, 50},
                         {51, 0},
                         {50, 1},
                         {UINT64_MAX, 1},
                         {1, UINT64_MAX},
                         {UINT64_MAX, UINT64_MAX}}) {
    const auto part = (*region)->part(row.offset, row.bytes);
    EXPECT_EQ(part.status().code(), Code::kInvalidArgument) << row.offset << " " << row.bytes;
    EXPECT_THAT(std::string(part.status().message()), HasSubstr("beyond its 50 bytes"));
  }
}

TEST(SharedRegion, KeysThatAreNoObjectsAreRefused) {
  const Object object(4096);
  for (const char* key : {"", "/", ".", "..", "/..", "a/b", "//a", "/a/../b", "../dev/null"}) {
    expect_refused({"r", key, 0, 1}, "wanted the name of a POSIX shared memory object");
  }
  expect_refused({"r", std::string("a\0b", 3), 0, 1}, "wanted the name of a POSIX");
  expect_refused({"r", std::string(300, 'a'), 0, 1}, "wanted the name of a POSIX");
  expect_refused({"r", "/no-such-object-of-this-test", 0, 1}, "there is no such");
  expect_refused({"r", "/lumen-1000-1.counters", 0, 1}, "the server's own");
  // A link, and something that is no memory.
  const std::string link = "/dev/shm" + object.key() + "-link";
  std::filesystem::create_symlink("/dev/shm" + object.key(), link);
  expect_refused({"r", object.key() + "-link", 0, 1}, "it is a link");
  std::filesystem::remove(link);
  const std::string pipe = "/dev/shm" + object.key() + "-pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_refused({"r", object.key() + "-pipe", 0, 1}, "no shared memory object");
  std::filesystem::remove(pipe);
}

TEST(SharedRegion, SizesBeyondTheObjectOrAnyRangeAreRefused) {
  const Object object(4096);
  expect_refused({"r", object.key(), 0, 0}, "byte_size is 0");
  expect_refused({"r", object.key(), 0, 4097}, "end beyond the 4096 bytes");
  expect_refused({"r", object.key(), 4096, 1}, "end beyond the 4096 bytes");
  expect_refused({"r", object.key(), UINT64_MAX, 1}, "end beyond the 4096 bytes");
  expect_refused({"r", object.key(), 1, UINT64_MAX}, "end beyond the 4096 bytes");
  expect_refused({"r", object.key(), UINT64_MAX, UINT64_MAX}, "end beyond the 4096 bytes");
}

TEST(SharedRegion, AnotherUsersObjectIsRefused) {
  const Object object(4096);
  expect_refused({"r", object.key(), 0, 1}, "belongs to user", ::geteuid() + 1);
  EXPECT_TRUE(SharedRegion::open({"r", object.key(), 0, 1}, std::nullopt).ok()) << "its own";
  EXPECT_TRUE(SharedRegion::open({"r", object.key(), 0, 1}, uid_t{0}).ok()) << "root may";
}

TEST(SharedRegion, AnObjectThatIsMadeShorterIsLostAndTheProcessLivesOn) {
  const Object object(4 * 4096);
  const Object other(4096, "b");
  const auto region = SharedRegion::open({"r", object.key(), 0, 4 * 4096}, ::geteuid());
  const auto untouched = SharedRegion::open({"o", other.key(), 0, 4096}, ::geteuid());
  ASSERT_TRUE(region.ok() && untouched.ok());
  const auto part = (*region)->part(0, 4 * 4096);
  ASSERT_TRUE(part.ok());
  object.resize(4096);
  EXPECT_FALSE((*region)->was_lost()) << "nobody has looked";
  volatile std::byte* const at = part->data();
  const std::byte behind = at[2 * 4096];
  EXPECT_EQ(behind, std::byte{0});
  at[3 * 4096] = std::byte{1};
  EXPECT_TRUE((*region)->was_lost());
  const auto again = (*region)->part(0, 1);
  EXPECT_EQ(again.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(again.status().message()), HasSubstr("made shorter"));
  EXPECT_FALSE((*untouched)->was_lost());
}

TEST(SharedRegion, MappingsGoWithTheObject) {
  const Object object(64 * 4096);
  for (int i = 0; i < 3000; ++i) {
    ASSERT_TRUE(SharedRegion::open({"r", object.key(), 1, 63 * 4096}, ::geteuid()).ok()) << i;
  }
}

}  // namespace
}  // namespace lumen::service
