// config.json and flags: the accepted values, and how the rest is refused. One thread; temporary
// files.
#include <lumen/base/check.h>
#include <lumen/server/settings.h>

#include "support/source_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace lumen::server {
namespace {

using engine::EngineConfig;
using models::AllocatorType;
using models::QueueType;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const Setting& setting_of(std::string_view key) {
  const auto found = std::ranges::find(settings(), key, &Setting::key);
  LUMEN_CHECK(found != settings().end());
  return *found;
}

Status set_flag(const Setting& setting, ServerOptions& options, std::string_view value) {
  return setting.set(options, value).at(setting.flag());
}

std::string flag_refusal(std::string_view key, std::string_view value) {
  ServerOptions options;
  return std::string(set_flag(setting_of(key), options, value).message());
}

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

TEST_F(ConfigFile, SetsTheKeysThatItNamesAndLeavesTheRest) {
  const auto options = load(R"({"engine": {"thread_count": 3}, "server": {"http": ":0"}})");
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(3u, options->engine.thread_count);
  EXPECT_EQ(":0", options->http_address);
  EXPECT_EQ(ServerOptions{}.engine.queue_capacity, options->engine.queue_capacity);
}

TEST_F(ConfigFile, TheOneInTheProjectsRootLoads) {
  const auto options = load_config(test::source_path("config.json"), {});
  EXPECT_TRUE(options.ok()) << options.status().message();
}

TEST_F(ConfigFile, TheFormThatUsersHaveLoadsAsItIs) {
  const auto options = load_config(test::source_path("tests/fixtures/config_of_users.json"), {});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EngineConfig wanted;
  wanted.queue_type = QueueType::kMpmc;
  wanted.allocator_type = AllocatorType::kLumenArena;
  wanted.thread_count = 8;
  wanted.batch_size = 1;
  EXPECT_EQ(wanted, options->engine);
  EXPECT_EQ("../results/micro/squeezenet_mpmc_lumen_arena.csv", options->telemetry_csv_path);
}

// Values that are no default, so that a row that sets another's member is seen.
const std::vector<std::pair<std::string_view, std::string_view>> kOtherValues = {
    {"queue_type", "inline"},
    {"allocator_type", "standard"},
    {"thread_count", "7"},
    {"batch_size", "9"},
    {"max_queue_delay_us", "11"},
    {"queue_capacity", "4096"},
    {"policy", "deadline"},
    {"default_timeout_us", "13"},
    {"latency_budget_us", "17"},
    {"pin_threads", "1,3-4"},
    {"spin", "off"},
    {"telemetry_csv_path", "a/b.csv"},
    {"telemetry_csv_max_bytes", "100000"},
    {"telemetry_csv_keep", "19"},
    {"otlp_endpoint", "http://127.0.0.1:4318"},
    {"otlp_service_name", "ranking"},
    {"otlp_one_in", "1000"},
    {"stats", "a.counters"},
    {"http", "[::1]:80"},
    {"grpc", "127.0.0.1:8001"},
    {"unix", "a.sock"},
    {"bus", "a.bus"},
    {"bus_area_bytes", "65536"},
    {"allowed_hosts", "a.example,10.0.0.1"},
    {"cors_origins", "https://a.example,http://b.example:8080"},
    {"model_repository", "elsewhere"},
    {"backend", "onnxruntime"},
    {"backend_trial_ms", "47"},
    {"backend_choices", "c.json"},
    {"compiled_models", "compiled"},
    {"python", "on"},
    {"execution_providers", R"([{"name":"cuda","device_id":1}])"},
    {"io_threads", "3"},
    {"loop", "io_uring"},
    {"recording", "on"},
    {"tcp_control", "on"},
    {"tcp_shm", "on"},
    {"reply_compression", "on"},
    {"api_key_file", "keys"},
    {"tls_cert", "cert.pem"},
    {"tls_key", "key.pem"},
    {"tls_client_ca", "ca.pem"},
    {"ready_when", "all"},
    {"model_control", "poll"},
    {"load_files", "on"},
    {"shm_key_prefix", "app-"},
    {"shm_user_bytes", "65536"},
    {"poll_interval_ms", "250"},
    {"recording_bytes", "8192"},
    {"overload_status", "503"},
    {"max_body_bytes", "2048"},
    {"max_connections", "23"},
    {"max_active_requests", "29"},
    {"max_memory_bytes", "123456789"},
    {"region_huge_pages", "on"},
    {"region_prefault_bytes", "65536"},
    {"region_numa_node", "1"},
    {"head_timeout_ms", "31"},
    {"write_timeout_ms", "37"},
    {"idle_timeout_ms", "41"},
    {"drain_delay_ms", "44"},
    {"follow_links", "on"},
    {"drain_timeout_ms", "43"},
    {"log_level", "warn"},
    {"log_format", "json"}};

TEST_F(ConfigFile, EveryKeyTakesItsOwnDefaultAndEveryOtherValue) {
  ASSERT_EQ(settings().size(), kOtherValues.size());
  for (const auto& [key, value] : kOtherValues) {
    const Setting& setting = setting_of(key);
    ServerOptions options;
    const Status status = set_flag(setting, options, value);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(value, setting.get(options)) << key;
    EXPECT_THAT(changed_settings(ServerOptions{}, options), ElementsAre(&setting)) << key;
    EXPECT_TRUE(set_flag(setting, options, setting.get(ServerOptions{})).ok()) << key;
    EXPECT_THAT(changed_settings(ServerOptions{}, options), testing::IsEmpty()) << key;
  }
}

TEST_F(ConfigFile, AnUnknownKeyIsRefusedWithLineAndNearestName) {
  const std::string message = refusal("{\n  \"engine\": {\n    \"thread_cout\": 3\n  }\n}");
  EXPECT_THAT(message, HasSubstr(".json:3: 'thread_cout' is no key of 'engine'"));
  EXPECT_THAT(message, HasSubstr("the nearest is 'thread_count'"));
}

TEST_F(ConfigFile, AKeyLikeNoOtherIsAnsweredWithTheListOfAll) {
  EXPECT_THAT(refusal(R"({"engine": {"colour": 3}})"),
              AllOf(HasSubstr("there are queue_type, allocator_type"), HasSubstr("batch_size")));
}

TEST_F(ConfigFile, AKeyInTheOtherSectionIsToldWhereItBelongs) {
  EXPECT_THAT(refusal("{\"engine\": {\n\"io_threads\": 3}}"),
              HasSubstr(":2: 'io_threads' is no key of 'engine' but of 'server'"));
  EXPECT_THAT(refusal(R"({"batch_size": 3})"),
              HasSubstr(":1: 'batch_size' stands outside of its section 'engine'"));
}

TEST_F(ConfigFile, TheLineIsThatOfTheKeyAlsoWhereAValueReadsLikeIt) {
  const std::string message = refusal("{\n\"server\": {\n\"http\": \"unix\",\n\n\"unix\": 3}}");
  EXPECT_THAT(message, HasSubstr(":3: 'http': address 'unix'"));
  EXPECT_THAT(refusal("{\"server\": {\n\"http\": \"off\",\n\n\"unix\": 3}}"),
              HasSubstr(":4: 'unix': got 3, wanted a string"));
}

TEST_F(ConfigFile, AKeyThatIsThereTwiceIsRefused) {
  EXPECT_THAT(refusal("{\"engine\": {\"batch_size\": 1,\n\n\"batch_size\": 2}}"),
              HasSubstr(":3: 'batch_size' is there twice, first on line 1"));
  EXPECT_THAT(refusal("{\"engine\": {},\n\"engine\": {}}"),
              HasSubstr(":2: 'engine' is there twice, first on line 1"));
}

TEST_F(ConfigFile, AnUnknownSectionIsRefused) {
  EXPECT_THAT(refusal(R"({"enginee": {}})"), HasSubstr("nearest is 'engine'"));
  EXPECT_THAT(refusal(R"({"engine": {}, "": {"batch_size": 1}})"), HasSubstr("'' is no section"));
  EXPECT_THAT(refusal(R"({"engine": [{"batch_size": 1}]})"),
              HasSubstr("'engine': got an array, wanted an object"));
}

TEST_F(ConfigFile, AWrongTypeSaysGotAndWanted) {
  EXPECT_THAT(refusal(R"({"engine": {"thread_count": "3"}})"),
              AllOf(HasSubstr("got \"3\""), HasSubstr("wanted a whole number")));
  EXPECT_THAT(refusal(R"({"engine": {"thread_count": -1}})"), HasSubstr("got -1"));
  EXPECT_THAT(refusal(R"({"engine": {"thread_count": 1.5}})"), HasSubstr("got 1.5"));
  EXPECT_THAT(refusal(R"({"engine": {"thread_count": null}})"), HasSubstr("got null"));
  EXPECT_THAT(refusal(R"({"engine": {"thread_count": true}})"), HasSubstr("got true"));
  EXPECT_THAT(refusal(R"({"engine": {"thread_count": {"a": [1]}}})"), HasSubstr("got an object"));
  EXPECT_THAT(refusal(R"({"engine": {"thread_count": [[1], {"b": 2}]}})"),
              HasSubstr("got an array"));
  EXPECT_THAT(refusal(R"({"server": {"http": 80}})"), HasSubstr("wanted a string"));
}

TEST_F(ConfigFile, AWrongWordIsAnsweredWithTheNearest) {
  EXPECT_THAT(refusal("{\"engine\": {\n\"queue_type\": \"mpcm\"}}"),
              AllOf(HasSubstr(":2: 'queue_type': got 'mpcm'"), HasSubstr("the nearest is 'mpmc'")));
  EXPECT_THAT(refusal(R"({"engine": {"allocator_type": "arena_lumen"}})"),
              AllOf(HasSubstr("wanted one of lumen_arena, standard"), Not(HasSubstr("nearest"))));
  EXPECT_THAT(refusal(R"({"server": {"log_format": "JSON"}})"),
              HasSubstr("wanted one of text, json"));
}

TEST_F(ConfigFile, AnImpossibleValueIsRefusedWithItsPlaceAndItsBounds) {
  EXPECT_THAT(refusal("{\"engine\": {\n\"batch_size\": 0}}"),
              HasSubstr(".json:2: 'batch_size': got 0, wanted 1 to 128"));
  EXPECT_THAT(refusal(R"({"engine": {"queue_capacity": 1000}})"),
              HasSubstr("'queue_capacity': got 1000, wanted a power of two from 2 to 1048576"));
  EXPECT_THAT(refusal(R"({"server": {"overload_status": 404}})"),
              HasSubstr("'overload_status': got '404', wanted one of 429, 503"));
  EXPECT_THAT(refusal(R"({"server": {"unix": ")" + std::string(108, 'x') + "\"}}"),
              AllOf(HasSubstr("108 bytes"), HasSubstr("wanted 1 to 107")));
  EXPECT_THAT(refusal(R"({"server": {"idle_timeout_ms": 18446744073709551615}})"),
              HasSubstr("'idle_timeout_ms': got "));
}

TEST_F(ConfigFile, ANumberTooLargeForItsOptionIsRefused) {
  EXPECT_THAT(refusal(R"({"engine": {"thread_count": 99999999999}})"),
              HasSubstr("'thread_count': got 99999999999, wanted 0 to 256"));
  EXPECT_THAT(refusal(R"({"engine": {"thread_count": 99999999999999999999999}})"),
              HasSubstr("wanted a whole number, 0 or more"));
  EXPECT_THAT(refusal(R"({"engine": {"thread_count": 1e999}})"), HasSubstr("1e999"));
}

TEST_F(ConfigFile, TextThatIsNoJsonSaysWhere) {
  EXPECT_THAT(refusal("{\n  \"engine\": \n"), HasSubstr("line 3"));
  EXPECT_THAT(refusal("{\n \"engine\": {} // so\n}"), HasSubstr(".json:2: no JSON"));
  EXPECT_THAT(refusal(""), HasSubstr("no JSON"));
  EXPECT_THAT(refusal("{} {}"), HasSubstr("no JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("got an array, wanted an object"));
  EXPECT_THAT(refusal("3"), HasSubstr("got 3, wanted an object"));
}

TEST_F(ConfigFile, AFolderOrNothingInItsPlaceIsRefused) {
  for (const std::string& path : {testing::TempDir(), testing::TempDir() + "/no/such.json"}) {
    const auto options = load_config(path, {});
    ASSERT_FALSE(options.ok());
    EXPECT_EQ(Code::kNotFound, options.status().code());
    EXPECT_THAT(std::string(options.status().message()), HasSubstr(path));
  }
}

TEST(Settings, EveryKeyIsAFlagWithDashes) {
  EXPECT_EQ("--io-threads", setting_of("io_threads").flag());
  ServerOptions options;
  EXPECT_TRUE(set_flag(setting_of("io_threads"), options, "2").ok());
  EXPECT_EQ(2u, options.io_thread_count);
  EXPECT_EQ("--io-threads: got 'two', wanted a whole number, 1 to 64",
            flag_refusal("io_threads", "two"));
  EXPECT_EQ("--io-threads: got 0, wanted 1 to 64", flag_refusal("io_threads", "0"));
}

TEST(Settings, FlagsHaveNamesOfTheirOwn) {
  for (const Setting& setting : settings()) {
    EXPECT_EQ(1, std::ranges::count(settings(), setting.key, &Setting::key)) << setting.key;
  }
}

TEST(Settings, OffSwitchesTheCsvOff) {
  ServerOptions options;
  options.telemetry_csv_path = "a.csv";
  EXPECT_TRUE(set_flag(setting_of("telemetry_csv_path"), options, "off").ok());
  EXPECT_TRUE(options.telemetry_csv_path.empty());
}

TEST(Options, BothListenersOffAreRefused) {
  ServerOptions options;
  EXPECT_TRUE(validate_options(options).ok());
  options.http_address = "off";
  options.unix_path = "a.sock";
  EXPECT_TRUE(validate_options(options).ok());
  options.unix_path = "off";
  EXPECT_THAT(std::string(validate_options(options).message()),
              HasSubstr("unix too: nothing would listen"));
  options.bus_path = "a.bus";
  EXPECT_TRUE(validate_options(options).ok()) << "the bus is somewhere to listen";
  options.bus_path = "";
  options.unix_path = "";
  ASSERT_EQ(0, ::unsetenv("XDG_RUNTIME_DIR"));
  EXPECT_THAT(std::string(validate_options(options).message()),
              HasSubstr("$XDG_RUNTIME_DIR is not set: nothing would listen; wanted"));
}

// Was: as many requests in memory as places in the queue, so that the queue could not fill and
// nobody was answered 429.
TEST(Options, ByDefaultMoreRequestsAreInMemoryThanTheQueueAndTheWorkersHold) {
  ServerOptions options;
  for (const uint32_t workers : {0u, 1u, 3u, 8u, 64u}) {
    for (const size_t capacity : {size_t{2}, size_t{1024}, size_t{4096}}) {
      options.engine.thread_count = workers;
      options.engine.queue_capacity = capacity;
      EXPECT_GT(enough_active_requests(options.engine), capacity + workers * 32);
      EXPECT_EQ(overload_note(options, options.engine), "");
    }
  }
}

TEST(Options, AQueueThatCanNotFillIsTold) {
  ServerOptions options;
  options.max_active_requests = 1024;
  EXPECT_THAT(overload_note(options, options.engine),
              AllOf(HasSubstr("max_active_requests 1024"), HasSubstr("up to 1056"),
                    HasSubstr("before it is answered 429")));
  // A live change may make the queue longer than the length reckoned with at start.
  options.max_active_requests = 1057;
  EngineConfig longer = options.engine;
  longer.queue_capacity = 2048;
  EXPECT_THAT(overload_note(options, longer), HasSubstr("up to 2080"));
  EXPECT_EQ(overload_note(options, options.engine), "");
}

TEST(Options, TheRingsOfSpscTogetherAreAsLongAsTheQueue) {
  EngineConfig config;
  for (config.thread_count = 1; config.thread_count <= 64; ++config.thread_count) {
    const size_t all = config.thread_count * engine::spsc_ring_capacity(config);
    EXPECT_GE(all, config.queue_capacity);
    EXPECT_LT(all, 2 * config.queue_capacity);
  }
}

TEST(Options, ImpossibleValuesAreRefusedByName) {
  ServerOptions options;
  options.engine.queue_capacity = 1000;
  EXPECT_THAT(std::string(validate_options(options).message()), HasSubstr("power of two"));
  options = {};
  options.io_thread_count = 0;
  EXPECT_THAT(std::string(validate_options(options).message()), HasSubstr("io_threads: got 0"));
}

std::string engine_refusal(std::string_view json) {
  const auto config = parse_engine_section(json, {});
  return config.ok() ? "accepted" : std::string(config.status().message());
}

TEST(EngineSection, IsTakenBareOrUnderItsName) {
  EngineConfig base;
  base.batch_size = 5;
  for (const char* json : {R"({"queue_type": "naive", "thread_count": 4})",
                           R"({"engine": {"queue_type": "naive", "thread_count": 4}})"}) {
    const auto config = parse_engine_section(json, base);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(QueueType::kNaive, config->queue_type);
    EXPECT_EQ(4u, config->thread_count);
    EXPECT_EQ(5u, config->batch_size);
  }
  const auto same = parse_engine_section("{}", base);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(base, *same);
}

TEST(EngineSection, RefusesKeysThatNeedARestart) {
  EXPECT_EQ("body:1: 'telemetry_csv_path' can't be changed while serving; restart with it",
            engine_refusal(R"({"telemetry_csv_path": "a.csv"})"));
  EXPECT_THAT(engine_refusal(R"({"engine": {"telemetry_csv_keep": 1}})"),
              HasSubstr("can't be changed while serving"));
}

TEST(EngineSection, RefusesOtherSectionsAndKeys) {
  EXPECT_THAT(engine_refusal(R"({"engine": {}, "server": {}})"),
              HasSubstr("'server' can't be here; wanted the section 'engine' alone"));
  EXPECT_THAT(engine_refusal(R"({"server": {"log_level": "off"}})"),
              HasSubstr("'server' is no key of 'engine'"));
  EXPECT_THAT(engine_refusal(R"({"log_level": "off"})"), HasSubstr("but of 'server'"));
  EXPECT_THAT(engine_refusal(R"({"queue_tpye": "off"})"), HasSubstr("nearest is 'queue_type'"));
  EXPECT_THAT(engine_refusal(R"({"engine": 3})"), HasSubstr("'engine': got 3, wanted an object"));
}

TEST(EngineSection, RefusesValuesAsTheFileDoes) {
  EXPECT_EQ("body:2: 'batch_size': got 0, wanted 1 to 128",
            engine_refusal("{\n\"batch_size\": 0}"));
  EXPECT_THAT(engine_refusal("{"), HasSubstr("body:1: no JSON"));
  EXPECT_THAT(engine_refusal(std::string(65 * 1024, ' ')), HasSubstr("wanted 65536 at most"));
  EXPECT_THAT(engine_refusal("{\"batch_size\": " + std::string(60'000, '[')), HasSubstr("no JSON"));
}

class ConfigurationPage : public testing::Test {
 protected:
  // Without the backquotes, which a terminal does not have. A row may go on behind the table's
  // text.
  static std::string row_of(const Setting& setting) {
    std::ifstream page(test::source_path("docs/configuration.md"));
    const std::string begin = "| " + std::string(setting.key) + " | ";
    for (std::string line; std::getline(page, line);) {
      std::erase(line, '`');
      if (line.starts_with(begin)) return line;
    }
    return "no row";
  }
};

TEST_F(ConfigurationPage, SaysTheSameOfEveryKeyAsTheTable) {
  for (const Setting& setting : settings()) {
    const std::string value = setting.get(ServerOptions{});
    const char* change = setting.change == SettingChange::kLive ? "live" : "restart";
    std::string wanted = "| " + std::string(setting.key) + " | " + setting.flag() + " | ";
    wanted.append(value.empty() ? "(see below)" : value).append(" | ");
    wanted.append(setting.values_text()).append(" | ").append(change).append(" | ");
    EXPECT_THAT(row_of(setting), testing::StartsWith(wanted.append(setting.help)));
  }
}

}  // namespace
}  // namespace lumen::server
