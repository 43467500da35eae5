// config.json and flags: what is taken, and how the rest is refused. One thread; temporary files.
#include <lumen/serve/settings.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace lumen::serve {
namespace {

using testing::HasSubstr;

class ConfigFile : public testing::Test {
 protected:
  Result<ServerOptions> load(const std::string& text) {
    const std::filesystem::path file =
        std::filesystem::path(testing::TempDir()) /
        (std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + ".json");
    std::ofstream(file) << text;
    return load_config(file, {});
  }
  std::string refusal(const std::string& text) {
    auto options = load(text);
    return options.ok() ? "accepted" : std::string(options.status().message());
  }
};

TEST_F(ConfigFile, SetsWhatItNamesAndLeavesTheRest) {
  const auto options = load(R"({"engine": {"thread_count": 3}, "server": {"http": ":0"}})");
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(3u, options->engine.thread_count);
  EXPECT_EQ(":0", options->http_address);
  EXPECT_EQ(ServerOptions{}.engine.queue_capacity, options->engine.queue_capacity);
}

TEST_F(ConfigFile, TheOneInTheProjectsRootLoads) {
  const auto options = load_config(LUMEN_SOURCE_DIR "/config.json", {});
  EXPECT_TRUE(options.ok()) << options.status().message();
}

TEST_F(ConfigFile, AnUnknownKeyIsRefusedWithLineAndNearestName) {
  const std::string message = refusal("{\n  \"engine\": {\n    \"thread_cout\": 3\n  }\n}");
  EXPECT_THAT(message, HasSubstr(".json:3: 'thread_cout'"));
  EXPECT_THAT(message, HasSubstr("'thread_count'"));
}

TEST_F(ConfigFile, AnUnknownSectionIsRefused) {
  EXPECT_THAT(refusal(R"({"enginee": {}})"), HasSubstr("nearest is 'engine'"));
}

TEST_F(ConfigFile, AWrongTypeSaysWhatItGotAndWanted) {
  EXPECT_THAT(refusal(R"({"engine": {"thread_count": "3"}})"),
              testing::AllOf(HasSubstr("got \"3\""), HasSubstr("wanted a whole number")));
  EXPECT_THAT(refusal(R"({"engine": {"thread_count": -1}})"), HasSubstr("got -1"));
  EXPECT_THAT(refusal(R"({"engine": {"thread_count": 1.5}})"), HasSubstr("got 1.5"));
  EXPECT_THAT(refusal(R"({"server": {"http": 80}})"), HasSubstr("wanted a string"));
}

TEST_F(ConfigFile, AValueThatIsNotThereYetIsRefusedNotIgnored) {
  EXPECT_THAT(refusal(R"({"engine": {"queue_type": "batched"}})"), HasSubstr("wanted 'mpmc'"));
}

TEST_F(ConfigFile, ANumberTooLargeForItsOptionIsRefused) {
  EXPECT_THAT(refusal(R"({"engine": {"thread_count": 99999999999}})"),
              HasSubstr("got '99999999999'"));
}

TEST_F(ConfigFile, TextThatIsNoJsonSaysWhere) {
  EXPECT_THAT(refusal("{\n  \"engine\": \n"), HasSubstr("line 3"));
  EXPECT_THAT(refusal("[]"), HasSubstr("wanted an object"));
}

TEST(Settings, EveryKeyIsAFlagWithDashes) {
  const auto all = settings();
  const auto io = std::ranges::find(all, "io_threads", &Setting::key);
  ASSERT_NE(all.end(), io);
  EXPECT_EQ("--io-threads", flag_name(*io));
  ServerOptions options;
  EXPECT_TRUE(apply_setting(*io, options, "2").ok());
  EXPECT_EQ(2u, options.io_thread_count);
  EXPECT_THAT(std::string(apply_setting(*io, options, "two").message()),
              HasSubstr("--io-threads: got 'two'"));
}

TEST(Options, ImpossibleValuesAreRefusedByName) {
  ServerOptions options;
  EXPECT_TRUE(validate_options(options).ok());
  options.engine.queue_capacity = 1000;
  EXPECT_THAT(std::string(validate_options(options).message()), HasSubstr("power of two"));
  options = {};
  options.engine.thread_count = 0;
  EXPECT_THAT(std::string(validate_options(options).message()), HasSubstr("--thread-count is 0"));
}

}  // namespace
}  // namespace lumen::serve
