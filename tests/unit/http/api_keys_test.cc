// ApiKeys: the file's grammar and rights, and which keys are taken. Threads: one. Memory: the heap.
// Errors: by gtest.
#include <lumen/transports/common/api_keys.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace lumen::transports {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kInferKey = "infer-key-0123456789";
const std::string kControlKey = "control-key-0123456789";

ApiKeys keys_of(const std::string& text) {
  Result<ApiKeys> keys = ApiKeys::parse(text, "keys");
  EXPECT_TRUE(keys.ok()) << keys.status().message();
  return *std::move(keys);
}

ApiKeys both() {
  return keys_of("# ours\n\ninfer " + kInferKey + "\r\n\tcontrol  " + kControlKey + " \n");
}

TEST(ApiKeysTest, EachKeyHasItsRole) {
  const ApiKeys keys = both();
  EXPECT_EQ(keys.role_of("Bearer " + kInferKey), Role::kInfer);
  EXPECT_EQ(keys.role_of("Bearer " + kControlKey), Role::kControl);
  EXPECT_EQ(keys.role_of("bEARER   " + kControlKey), Role::kControl);
}

TEST(ApiKeysTest, NothingElseHasOne) {
  const ApiKeys keys = both();
  EXPECT_EQ(keys.role_of(""), Role::kNone);
  EXPECT_EQ(keys.role_of("Bearer"), Role::kNone);
  EXPECT_EQ(keys.role_of("Bearer "), Role::kNone);
  EXPECT_EQ(keys.role_of(kInferKey), Role::kNone);
  EXPECT_EQ(keys.role_of("Basic " + kInferKey), Role::kNone);
  EXPECT_EQ(keys.role_of("Bearer " + kInferKey + " "), Role::kNone);
  EXPECT_EQ(keys.role_of("Bearer " + kInferKey + "," + kControlKey), Role::kNone);
  EXPECT_EQ(keys.role_of("Bearer " + std::string(ApiKeys::kMostKeyBytes + 1, 'a')), Role::kNone);
  for (size_t i = 0; i < kInferKey.size(); ++i) {
    std::string other = kInferKey;
    other[i] ^= 1;
    EXPECT_EQ(keys.role_of("Bearer " + other), Role::kNone) << i;
    EXPECT_EQ(keys.role_of("Bearer " + kInferKey.substr(0, i)), Role::kNone) << i;
  }
  EXPECT_EQ(keys.role_of("Bearer " + kInferKey + std::string(1, '\0')), Role::kInfer)
      << "no header can have a zero byte: wire refuses it";
}

TEST(ApiKeysTest, TheLongestKeyIsComparedToItsEnd) {
  const std::string longest(ApiKeys::kMostKeyBytes, 'k');
  const ApiKeys keys = keys_of("infer " + longest);
  EXPECT_EQ(keys.role_of("Bearer " + longest), Role::kInfer);
  std::string other = longest;
  other.back() = 'l';
  EXPECT_EQ(keys.role_of("Bearer " + other), Role::kNone);
}

TEST(ApiKeysTest, ALineThatIsNoKeyIsNamedAndNotShown) {
  for (const std::string& line :
       {kInferKey, std::string("infer"), std::string("infer short"), "admin " + kInferKey,
        "infer " + kInferKey + " more", "Infer " + kInferKey,
        "infer " + std::string(ApiKeys::kMostKeyBytes + 1, 'a'), "infer k\xc3\xa4y" + kInferKey}) {
    const Result<ApiKeys> keys = ApiKeys::parse("# one\n" + line + "\n", "keys");
    ASSERT_FALSE(keys.ok()) << line;
    EXPECT_THAT(std::string(keys.status().message()), HasSubstr("keys:2: wanted infer or control"));
    EXPECT_THAT(std::string(keys.status().message()), Not(HasSubstr(kInferKey)));
  }
}

TEST(ApiKeysTest, NoKeysAndTooManyAreRefused) {
  EXPECT_FALSE(ApiKeys::parse("", "keys").ok());
  EXPECT_FALSE(ApiKeys::parse("# none\n", "keys").ok());
  std::string text;
  for (size_t i = 0; i < ApiKeys::kMostKeys; ++i) {
    text += "infer a-key-of-number-" + std::to_string(1000 + i) + "\n";
  }
  EXPECT_TRUE(ApiKeys::parse(text, "keys").ok());
  EXPECT_FALSE(ApiKeys::parse(text + "infer " + kInferKey, "keys").ok());
}

class ApiKeysFile : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lumen-keys-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    file_ = folder_ / "keys";
    write("control " + kControlKey + "\n", 0600);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& text, mode_t mode) const {
    std::ofstream(file_) << text;
    ASSERT_EQ(::chmod(file_.c_str(), mode), 0);
  }
  [[nodiscard]] std::string fault() const {
    const Result<ApiKeys> keys = ApiKeys::read(file_);
    return keys.ok() ? "" : std::string(keys.status().message());
  }

  std::filesystem::path folder_;
  std::filesystem::path file_;
};

TEST_F(ApiKeysFile, IsReadIfOtherUsersCanNotReadIt) {
  EXPECT_EQ(fault(), "");
  write("control " + kControlKey + "\n", 0440);
  EXPECT_EQ(fault(), "");
  for (const mode_t mode : {0604u, 0602u, 0620u, 0644u}) {
    write("control " + kControlKey + "\n", mode);
    EXPECT_THAT(fault(), HasSubstr("chmod 600")) << mode;
  }
}

TEST_F(ApiKeysFile, MustBeAFileOfReasonableSize) {
  write(std::string(ApiKeys::kMostFileBytes + 1, '#'), 0600);
  EXPECT_THAT(fault(), HasSubstr("at most 65536 bytes"));
  std::filesystem::remove(file_);
  EXPECT_THAT(fault(), HasSubstr("No such file"));
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_THAT(fault(), HasSubstr("wanted a file"));
}

TEST(ApiKeysInUseTest, ATableIsFreedOnceEachThreadHasBegunAnotherTurn) {
  ApiKeysInUse keys;
  EXPECT_EQ(keys.now(), nullptr);
  int waits = 0;
  keys.replace(keys_of("infer " + kInferKey), [&] { ++waits; });
  EXPECT_EQ(waits, 0) << "nobody has an older table";
  const ApiKeys* const first = keys.now();
  keys.replace(both(), [&] {
    ++waits;
    EXPECT_EQ(first->role_of("Bearer " + kInferKey), Role::kInfer);
    EXPECT_NE(keys.now(), first);
  });
  EXPECT_EQ(waits, 1);
  EXPECT_EQ(keys.now()->role_of("Bearer " + kControlKey), Role::kControl);
}

}  // namespace
}  // namespace lumen::transports
