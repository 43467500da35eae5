// The reader of config.json and of the engine section against a model of its own of the valid
// values, written from docs/configuration.md: random documents of valid and invalid values must be
// taken with just these values, or refused, as the model says; random bytes must be taken or
// refused with their place.
// One thread; temporary files. The seed is a property of each test.
#include <lumen/server/settings.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace lumen::server {
namespace {

using nlohmann::json;

constexpr uint64_t kSeed = 20'261'122;

// --- the model: not one line of it is the server's -----------------------------------------------

struct NumberRule {
  uint64_t low, high;
  bool power_of_two = false;
};
struct WordRule {
  std::set<std::string> words;
};
// Texts of which only examples are known: addresses and the like.
struct ExampleRule {
  std::vector<std::string> good, bad;
  bool is_list = false;  // in JSON, as a text or as it is
};
struct Rule {
  std::string section;
  bool live;
  std::optional<NumberRule> number;
  std::optional<WordRule> words;
  std::optional<ExampleRule> examples;
};

constexpr uint64_t kDayMs = 86'400'000, kDayUs = 86'400'000'000;

Rule number(const char* section, bool live, uint64_t low, uint64_t high, bool power = false) {
  return {section, live, NumberRule{low, high, power}, {}, {}};
}
Rule word(const char* section, bool live, std::set<std::string> words) {
  return {section, live, {}, WordRule{std::move(words)}, {}};
}
Rule text(const char* section, std::vector<std::string> good, std::vector<std::string> bad,
          bool is_list = false) {
  return {section, false, {}, {}, ExampleRule{std::move(good), std::move(bad), is_list}};
}

std::map<std::string, Rule> engine_rules() {
  return {
      {"queue_type", word("engine", true, {"mpmc", "spsc", "naive", "batched", "inline", "auto"})},
      {"policy", word("engine", true, {"fair", "deadline", "fifo"})},
      {"allocator_type", word("engine", true, {"lumen_arena", "standard"})},
      {"thread_count", number("engine", true, 0, 256)},
      {"batch_size", number("engine", true, 1, 128)},
      {"max_queue_delay_us", number("engine", true, 0, 10'000'000)},
      {"queue_capacity", number("engine", true, 2, 1 << 20, true)},
      {"default_timeout_us", number("engine", true, 0, kDayUs)},
      {"latency_budget_us", number("engine", true, 0, kDayUs)},
      {"pin_threads", text("engine", {"auto", "on", "off", "0", "1,3-4"},
                           {"", "maybe", "3-1", "1,1", "9000", "1,"})},
      {"spin", word("engine", false, {"auto", "off"})},
      {"telemetry_csv_path", text("engine", {"off", "a.csv", "../a b/c.csv"}, {})},
      {"telemetry_csv_max_bytes", number("engine", false, 65'536, uint64_t{1} << 40)},
      {"telemetry_csv_keep", number("engine", false, 0, 1000)},
      {"otlp_endpoint", text("engine",
                             {"off", "http://a:1", "http://a/v1/traces", "https://a:1",
                              "http+unix://%2Fa.sock", "unix:/a"},
                             {"", "a:4318", "grpcs://a:4317", "grpc://a:4317"})},
      {"otlp_service_name", text("engine", {"lumen", "a b"}, {""})},
      {"otlp_one_in", number("engine", false, 0, 4'294'967'295)},
      {"stats", text("engine", {"auto", "off", "a.counters"}, {""})}};
}

std::map<std::string, Rule> server_rules() {
  return {
      {"grpc", text("server", {"off", "127.0.0.1:0", ":8001"}, {"", "8001", "a:b"})},
      {"http", text("server", {"off", "127.0.0.1:0", ":80", "[::1]:65535", "localhost:1"},
                    {"", "x", "127.0.0.1", "127.0.0.1:65536", "1.2.3:80", "::1:80"})},
      {"bus", text("server", {"off", "a.bus", std::string(107, 'x')}, {"", std::string(108, 'x')})},
      {"bus_area_bytes", number("server", false, 4096, 1 << 30)},
      {"unix",
       text("server", {"off", "", "a.sock", std::string(107, 'x')}, {std::string(108, 'x')})},
      {"allowed_hosts", text("server", {"", "a.example", "a,10.0.0.1,::1", "*"},
                             {",", "a,", "a b", "a:80", "http://a", "[::1]"})},
      {"cors_origins", text("server", {"", "https://a.example", "http://a:80,https://[::1]", "*"},
                            {",", "a.example", "https://a/", "https://a, https://b"})},
      {"model_repository", text("server", {"models", "/a/b"}, {""})},
      {"follow_links", word("server", false, {"off", "on"})},
      {"backend", text("server", {"auto", "openvino", "another"}, {""})},
      {"backend_trial_ms", number("server", false, 0, 60'000)},
      {"backend_choices", text("server", {"", "off", "a/b.json"}, {})},
      {"compiled_models", text("server", {"", "off", "a/b"}, {})},
      {"execution_providers", text("server", {"[]", R"([{"name": "cuda"}])"},
                                   {"", "[", "{}", "[1]", R"([{"name": "a"}])", "[{}]"}, true)},
      {"python", text("server", {"off", "on", "/usr/bin/python3"}, {""})},
      {"io_threads", number("server", false, 1, 64)},
      {"loop", word("server", false, {"auto", "epoll", "io_uring"})},
      {"recording", word("server", false, {"off", "on"})},
      {"tcp_control", word("server", false, {"off", "on"})},
      {"api_key_file", text("server", {"", "keys", "/a/b"}, {})},
      {"tls_cert", text("server", {"", "cert.pem", "/a/b"}, {})},
      {"tls_key", text("server", {"", "key.pem", "/a/b"}, {})},
      {"tls_client_ca", text("server", {"", "ca.pem", "/a/b"}, {})},
      {"shm_key_prefix", text("server", {"", "app-", "/app"}, {})},
      {"shm_user_bytes", number("server", false, 0, uint64_t{1} << 50)},
      {"tcp_shm", word("server", false, {"off", "on"})},
      {"reply_compression", word("server", false, {"off", "auto", "on"})},
      {"load_files", word("server", false, {"off", "on"})},
      {"ready_when", word("server", false, {"serving", "all"})},
      {"model_control", word("server", false, {"none", "explicit", "poll"})},
      {"poll_interval_ms", number("server", false, 10, kDayMs)},
      {"recording_bytes", number("server", false, 4096, uint64_t{1} << 40)},
      {"max_body_bytes", number("server", false, 1024, uint64_t{1} << 34)},
      {"max_connections", number("server", false, 1, 1 << 20)},
      {"max_active_requests", number("server", false, 0, 65'536)},
      {"max_memory_bytes", number("server", false, 0, uint64_t{1} << 50)},
      {"region_huge_pages", word("server", false, {"off", "on"})},
      {"region_prefault_bytes", number("server", false, 0, uint64_t{1} << 34)},
      {"region_numa_node", text("server", {"any", "0", "7"}, {"", "all", "-1", "70000"})},
      {"head_timeout_ms", number("server", false, 1, kDayMs)},
      {"write_timeout_ms", number("server", false, 1, kDayMs)},
      {"idle_timeout_ms", number("server", false, 1, kDayMs)},
      {"drain_delay_ms", number("server", false, 0, kDayMs)},
      {"drain_timeout_ms", number("server", false, 0, kDayMs)},
      {"log_level", word("server", true, {"trace", "debug", "info", "warn", "error", "off"})},
      {"log_format", word("server", true, {"text", "json"})}};
}

const std::map<std::string, Rule>& rules() {
  static const std::map<std::string, Rule> all = [] {
    std::map<std::string, Rule> both = engine_rules();
    both.merge(server_rules());
    return both;
  }();
  return all;
}

bool allows(const NumberRule& rule, uint64_t value) {
  return value >= rule.low && value <= rule.high &&
         (!rule.power_of_two || std::has_single_bit(value));
}

// --- random documents ----------------------------------------------------------------------------

class Documents {
 public:
  explicit Documents(uint64_t seed) : random_(seed) {}

  uint64_t below(uint64_t bound) { return random_() % bound; }
  const std::string& any_key() {
    auto at = rules().begin();
    std::advance(at, below(rules().size()));
    return at->first;
  }
  // A value, and get()'s result once it is taken; nullopt: it must be refused.
  struct Value {
    json value;
    std::optional<std::string> taken;
  };
  Value value_for(const Rule& rule) {
    if (below(8) == 0) return wrong_kind(rule);
    if (rule.number) return number_for(*rule.number);
    if (rule.words) return word_for(*rule.words);
    const auto& [good, bad, is_list] = *rule.examples;
    const bool is_good = bad.empty() || below(3) > 0;
    const std::string& one = is_good ? good[below(good.size())] : bad[below(bad.size())];
    return {one, is_good ? std::optional(one) : std::nullopt};
  }

 private:
  Value wrong_kind(const Rule& rule) {
    const std::vector<json> others = {nullptr,        true,          1.5,  -1,   json::array({1}),
                                      json::object(), json::array(), -0.0, 1e300};
    const uint64_t at = below(others.size() + 1);
    const bool is_taken = rule.examples && rule.examples->is_list && at < others.size() &&
                          others[at] == json::array();
    if (is_taken) return {others[at], "[]"};
    if (at < others.size()) return {others[at], std::nullopt};
    return {rule.number ? json("1") : json(1), std::nullopt};
  }
  Value number_for(const NumberRule& rule) {
    uint64_t number = 0;
    switch (below(7)) {
      case 0: number = rule.low; break;
      case 1: number = rule.high; break;
      case 2: number = rule.low - 1; break;  // UINT64_MAX where low is 0
      case 3: number = rule.high + 1; break;
      case 4: number = uint64_t{1} << below(64); break;
      case 5: number = random_(); break;
      default: number = rule.low + below(rule.high - rule.low + 1); break;
    }
    return {number, allows(rule, number) ? std::optional(std::to_string(number)) : std::nullopt};
  }
  Value word_for(const WordRule& rule) {
    auto at = rule.words.begin();
    std::advance(at, below(rule.words.size()));
    std::string one = *at;
    if (below(3) > 0) return {one, one};
    switch (below(4)) {
      case 0: one.pop_back(); break;
      case 1: one += " "; break;
      case 2: one[0] = static_cast<char>(one[0] - 32); break;  // in capitals
      default: one.insert(below(one.size() + 1), 1, '\0'); break;
    }
    const bool taken = rule.words.contains(one);
    return {one, taken ? std::optional(one) : std::nullopt};
  }

  std::mt19937_64 random_;
};

std::string get(const std::string& key, const ServerOptions& options) {
  for (const Setting& setting : settings()) {
    if (setting.key == key) return setting.get(options);
  }
  return "no such key";
}

class SettingsFuzz : public testing::Test {
 protected:
  SettingsFuzz() { RecordProperty("seed", std::to_string(kSeed)); }
  static Result<ServerOptions> load(const std::string& document) {
    const auto file = std::filesystem::path(testing::TempDir()) / "settings_fuzz.json";
    std::ofstream(file) << document;
    return load_config(file, {});
  }
};

TEST_F(SettingsFuzz, TheModelKnowsEveryKeyButTheOneOfTwoValues) {
  size_t known = 0;
  for (const Setting& setting : settings()) {
    const auto rule = rules().find(std::string(setting.key));
    if (rule == rules().end()) {
      EXPECT_EQ("overload_status", setting.key);
      continue;
    }
    ++known;
    EXPECT_EQ(rule->second.section, setting.section) << setting.key;
    EXPECT_EQ(rule->second.live, setting.change == SettingChange::kLive) << setting.key;
    EXPECT_EQ(rule->second.number.has_value(), setting.is_number) << setting.key;
  }
  EXPECT_EQ(rules().size(), known);
}

TEST_F(SettingsFuzz, AFileIsTakenWithItsValuesOrRefusedAsTheModelSays) {
  Documents documents(kSeed);
  int taken = 0, refused = 0;
  for (int i = 0; i < 2'000; ++i) {
    json document = json::object();
    std::map<std::string, std::string> wanted;
    bool is_valid = true;
    for (uint64_t keys = 1 + documents.below(3); keys > 0; --keys) {
      const std::string& key = documents.any_key();
      const Rule& rule = rules().at(key);
      const auto [value, text] = documents.value_for(rule);
      std::string section = rule.section;
      if (documents.below(12) == 0) section = section == "engine" ? "server" : "engine";
      if (document[section].contains(key)) continue;
      document[section][key] = value;
      is_valid = is_valid && text && section == rule.section;
      if (text) wanted[key] = *text;
    }
    const std::string text = document.dump(documents.below(2) == 0 ? -1 : 1);
    const auto options = load(text);
    ASSERT_EQ(is_valid, options.ok())
        << "seed " << kSeed << ", document " << i << ": " << text << "\n"
        << (options.ok() ? "taken" : std::string(options.status().message()));
    if (!is_valid) {
      ++refused;
      EXPECT_NE(options.status().message().find("settings_fuzz.json:"), std::string_view::npos);
      continue;
    }
    ++taken;
    for (const auto& [key, value] : wanted) EXPECT_EQ(value, get(key, *options)) << text;
  }
  EXPECT_GT(taken, 200) << "both sides are tried";
  EXPECT_GT(refused, 200);
}

TEST_F(SettingsFuzz, AChangeIsTakenWithItsValuesOrRefusedAsTheModelSays) {
  Documents documents(kSeed + 1);
  int taken = 0, refused = 0;
  for (int i = 0; i < 6'000; ++i) {
    json body = json::object();
    std::map<std::string, std::string> wanted;
    bool is_valid = true;
    for (uint64_t keys = documents.below(4); keys > 0; --keys) {
      const std::string& key = documents.any_key();
      const Rule& rule = rules().at(key);
      if (body.contains(key)) continue;
      const auto [value, text] = documents.value_for(rule);
      body[key] = value;
      is_valid = is_valid && text && rule.live && rule.section == "engine";
      if (text) wanted[key] = *text;
    }
    const std::string text =
        documents.below(2) == 0 ? body.dump() : json::object({{"engine", body}}).dump();
    const auto config = parse_engine_section(text, {});
    ASSERT_EQ(is_valid, config.ok())
        << "seed " << kSeed + 1 << ", body " << i << ": " << text << "\n"
        << (config.ok() ? "taken" : std::string(config.status().message()));
    if (!is_valid) {
      ++refused;
      EXPECT_TRUE(config.status().message().starts_with("body:")) << config.status().message();
      continue;
    }
    ++taken;
    ServerOptions options;
    options.engine = *config;
    for (const auto& [key, value] : wanted) EXPECT_EQ(value, get(key, options)) << text;
  }
  EXPECT_GT(taken, 600);
  EXPECT_GT(refused, 600);
}

// Bytes that are no JSON, by a parser that is not the one under test (it throws, ours reports
// events), must be refused; JSON that is taken must be within bounds.
TEST_F(SettingsFuzz, RandomBytesAreTakenOnlyWhereTheyAreJson) {
  Documents documents(kSeed + 2);
  const std::string good =
      "{\n\"engine\": {\"queue_type\": \"naive\",\n\"thread_count\": 4, \"batch_size\": 7,\n"
      "\"max_queue_delay_us\": 12, \"allocator_type\": \"standard\"}}";
  constexpr std::string_view kBytes = "{}[],:\"\\\n 0-19.eEuntrfalse\xff\xc3\x80";
  int taken = 0, no_json = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string text = documents.below(4) == 0 ? std::string() : good;
    for (uint64_t edits = 1 + documents.below(text.empty() ? 40 : 3); edits > 0; --edits) {
      const char byte = documents.below(4) == 0 ? static_cast<char>(documents.below(256))
                                                : kBytes[documents.below(kBytes.size())];
      const size_t at = documents.below(text.size() + 1);
      switch (documents.below(3)) {
        case 0:
          if (at < text.size()) text[at] = byte;
          break;
        case 1: text.insert(at, 1, byte); break;
        default: text.erase(at, 1 + documents.below(4)); break;
      }
    }
    const auto config = parse_engine_section(text, {});
    const bool is_json = json::accept(text);
    if (!is_json) ++no_json;
    ASSERT_TRUE(is_json || !config.ok()) << "seed " << kSeed + 2 << ", taken: " << text;
    if (config.ok()) {
      ++taken;
      EXPECT_TRUE(config->check().ok()) << text;
    } else {
      EXPECT_TRUE(config.status().message().starts_with("body:")) << config.status().message();
    }
  }
  EXPECT_GT(taken, 30);
  EXPECT_GT(no_json, 1500);
}

}  // namespace
}  // namespace lumen::server
