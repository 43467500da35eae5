// A whole server and a client of its unix socket: settings of the engine, models that are loaded,
// replaced and unloaded, shared memory, recordings and logging, among infer requests that are cut
// anywhere. A model that stays is served with the right numbers through all of that, on this
// connection and another one.
//
// Threads: the fuzzer's; the server's own. Memory: the heap; a page of shared memory. Errors:
// CHECK.
#include "fuzz/http_replies.h"
#include "fuzz/live_server.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <optional>

namespace {

using lumen::fuzz::Connection;
using lumen::fuzz::HttpReplies;
using lumen::fuzz::LiveServer;
using lumen::fuzz::of_four;
using lumen::fuzz::Steps;
using lumen::server::ModelControl;
using lumen::server::post_request;
using lumen::server::ServerOptions;

// Values of the engine's settings that make no request wait or be refused.
constexpr std::array<std::string_view, 32> kSettings = {
    R"("queue_type":"auto")",
    R"("queue_type":"mpmc")",
    R"("queue_type":"spsc")",
    R"("queue_type":"naive")",
    R"("queue_type":"batched")",
    R"("queue_type":"inline")",
    R"("allocator_type":"lumen_arena")",
    R"("allocator_type":"standard_malloc")",
    R"("policy":"fair")",
    R"("policy":"deadline")",
    R"("policy":"fifo")",
    R"("thread_count":0)",
    R"("thread_count":1)",
    R"("thread_count":3)",
    R"("batch_size":1)",
    R"("batch_size":2)",
    R"("batch_size":128)",
    R"("max_queue_delay_us":0)",
    R"("max_queue_delay_us":50)",
    R"("queue_capacity":2)",
    R"("queue_capacity":4)",
    R"("queue_capacity":1024)",
    R"("default_timeout_us":0)",
    R"("default_timeout_us":60000000)",
    R"("latency_budget_us":0)",
    R"("latency_budget_us":60000000)",
    // Refused.
    R"("queue_type":"none")",
    R"("batch_size":0)",
    R"("batch_size":-1)",
    R"("queue_capacity":3)",
    R"("thread_count":1e9)",
    R"("spin":"off")",
};
constexpr std::string_view kUsualSettings =
    R"({"queue_type":"inline","allocator_type":"lumen_arena","policy":"fair","thread_count":1,)"
    R"("batch_size":16,"max_queue_delay_us":0,"queue_capacity":1024,"default_timeout_us":0,)"
    R"("latency_budget_us":0})";

constexpr std::array<std::string_view, 8> kConfigs = {
    R"({})",
    R"({"batching":false})",
    R"({"weight":7,"priority":1})",
    R"({"cache":{"ttl_ms":60000}})",
    R"({"backend":"fake"})",
    R"({"timeout_us":60000000})",
    R"({"max_batch_size":8})",
    R"({"backend":"none"})",
};
constexpr std::array<std::string_view, 4> kModels = {"comes_and_goes", "plus_one", "missing",
                                                     "a%20b"};
constexpr std::array<std::string_view, 12> kPaths = {
    "/v2/lumen/engine",
    "/v2/lumen/recording",
    "/v2/logging",
    "/v2/trace/setting",
    "/v2/models/plus_one/trace/setting",
    "/v2/repository/index",
    "/v2/repository/models/comes_and_goes/load",
    "/v2/repository/models/comes_and_goes/unload",
    "/v2/systemsharedmemory/region/a/register",
    "/v2/systemsharedmemory/region/a/unregister",
    "/v2/systemsharedmemory/unregister",
    "/v2/cudasharedmemory/region/a/register",
};
struct Posted {
  std::string_view path;
  std::string_view body;
};
constexpr std::array<Posted, 12> kPosted = {{
    {"/v2/logging", R"({"log_info":false,"log_warning":false})"},
    {"/v2/logging", R"({"log_error":true,"log_verbose_level":0})"},
    {"/v2/logging", R"({"log_file":"a\"b"})"},
    {"/v2/trace/setting", R"({"trace_level":["OFF"],"trace_rate":1000})"},
    {"/v2/models/comes_and_goes/trace/setting", R"({"trace_rate":null})"},
    {"/v2/trace/setting", R"({"trace_\u0001":"\n"})"},
    {"/v2/repository/index", ""},
    {"/v2/repository/index", R"({"ready":true})"},
    {"/v2/cudasharedmemory/region/a/register", R"({"raw_handle":{"b64":"AA=="}})"},
    {"/v2/systemsharedmemory/region/%22%0a/register", R"({"key":"/a"})"},
    {"/v2/systemsharedmemory/unregister", ""},
    {"/v2/models/%22/load", ""},
}};
constexpr std::array<std::string_view, 10> kTold = {
    "/v2/lumen/engine",
    "/v2/lumen/recording",
    "/v2/logging",
    "/v2/systemsharedmemory/status",
    "/v2/models/plus_one/stats",
    "/v2/models/stats",
    "/v2/models/plus_one/config",
    "/v2/models/comes_and_goes",
    "/v2/health/ready",
    "/metrics",
};

// A page of shared memory that holds one number again and again.
class Page {
 public:
  static constexpr float kNumber = 41;
  static constexpr size_t kBytes = 4096;
  Page() : key_("/lumen-fuzz-control-" + std::to_string(::getpid())) {
    const lumen::UniqueFd fd(::shm_open(key_.c_str(), O_CREAT | O_RDWR | O_TRUNC, 0600));
    LUMEN_CHECK(fd.get() >= 0);
    std::string content;
    while (content.size() < kBytes) content += of_four(kNumber);
    LUMEN_CHECK(::write(fd.get(), content.data(), kBytes) == ssize_t{kBytes});
  }
  ~Page() { ::shm_unlink(key_.c_str()); }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
  [[nodiscard]] const std::string& key() const { return key_; }

 private:
  std::string key_;
};

class Client final : public Connection {
 public:
  Client(LiveServer& server, const Page& page) : Connection(server, Way::kUnix), page_(page) {}

 private:
  void step(Steps& steps) override {
    switch (steps.byte() % 13) {
      case 0:
      case 1: infer("plus_one"); break;
      case 2: infer("comes_and_goes"); break;
      case 3:
      case 4: set(steps); break;
      case 5: load_or_unload(steps); break;
      case 6: region(steps); break;
      case 7: record(steps); break;
      case 8: ask(steps); break;
      case 9: body_of_the_fuzzer(steps); break;
      case 10: cut(steps.byte()); break;
      case 11: post(steps); break;
      default: send_any(steps); break;
    }
  }
  void finish() override {
    end();
    replies_.check(is_whole());
  }
  void on_received(std::string_view bytes) override { replies_.receive(bytes); }

  void control(std::string_view path, const std::string& body) {
    send(post_request(std::string(path), body));
    if (is_whole()) replies_.expect(std::nullopt);
  }

  // Of the model that stays each has an answer.
  void infer(const std::string& model) {
    const float value = server().next_value();
    send(lumen::server::binary_infer(model, "x", of_four(value)));
    if (is_whole()) replies_.expect(of_four(value + 1), model != "plus_one");
  }

  void set(Steps& steps) {
    std::string body = "{";
    for (uint8_t left = steps.byte() % 4; left > 0; --left) {
      body.append(kSettings[steps.byte() % kSettings.size()]).append(left > 1 ? "," : "");
    }
    control("/v2/lumen/engine", body + "}");
  }

  void load_or_unload(Steps& steps) {
    const uint8_t choice = steps.byte();
    const std::string_view model = kModels[choice % kModels.size()];
    const bool is_load = (choice & 4) != 0 || model == "plus_one";  // which stays
    std::string body;
    if (is_load && (choice & 8) != 0) {
      std::string config;
      for (const char c : kConfigs[steps.byte() % (model == "plus_one" ? 4 : kConfigs.size())]) {
        config.append(c == '"' ? "\\" : "").push_back(c);
      }
      body = R"({"parameters":{"config":")" + config + "\"}}";
    } else if ((choice & 16) != 0) {
      body = R"({"parameters":{"unload_dependents":false}})";
    }
    control("/v2/repository/models/" + std::string(model) + (is_load ? "/load" : "/unload"), body);
  }

  void region(Steps& steps) {
    const uint8_t choice = steps.byte();
    const std::string name((choice & 1) != 0 ? "a" : "b");
    const std::string size = std::to_string(size_t{steps.byte()} * 20);
    const std::string offset = std::to_string(size_t{steps.byte()} * 20);
    if ((choice & 6) == 0) {
      return control("/v2/systemsharedmemory/region/" + name + "/unregister", "");
    }
    if ((choice & 6) == 2) {
      return control("/v2/systemsharedmemory/region/" + name + "/register",
                     R"({"key":")" + page_.key() + R"(","offset":)" + offset + R"(,"byte_size":)" +
                         size + "}");
    }
    const std::string json =
        R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"parameters":{)"
        R"("shared_memory_region":")" +
        name + R"(","shared_memory_byte_size":16,"shared_memory_offset":)" + offset +
        R"(}}],"parameters":{"binary_data_output":true}})";
    send(post_request("/v2/models/plus_one/infer", json));
    if (is_whole()) replies_.expect(of_four(Page::kNumber + 1), true);
  }

  void record(Steps& steps) {
    const uint8_t choice = steps.byte();
    const std::string number = std::to_string(steps.byte());
    const std::string_view model = kModels[choice / 4 % kModels.size()];
    switch (choice % 4) {
      case 0:
        return control(
            "/v2/lumen/recording",
            R"({"action":"begin","model":")" + std::string(model) + R"(","rows":)" + number + "}");
      case 1: return control("/v2/lumen/recording", R"({"action":"row","number":)" + number + "}");
      case 2: return control("/v2/lumen/recording", R"({"action":"end"})");
      default: return control("/v2/lumen/recording", R"({"action":"drop"})");
    }
  }

  void post(Steps& steps) {
    const Posted& posted = kPosted[steps.byte() % kPosted.size()];
    control(posted.path, std::string(posted.body));
  }

  void ask(Steps& steps) {
    send(lumen::server::get_request(std::string(kTold[steps.byte() % kTold.size()])));
    if (is_whole()) replies_.expect(std::nullopt);
  }

  // Any bytes, but no time that requests would wait for.
  void body_of_the_fuzzer(Steps& steps) {
    const std::string_view path = kPaths[steps.byte() % kPaths.size()];
    const std::string body(steps.bytes(steps.byte()));
    const auto has = [&](std::string_view word) { return body.find(word) != std::string::npos; };
    if (path == "/v2/lumen/engine" && (has("_us") || has("thread_count") || has("\\"))) return;
    control(path, body);
  }

  const Page& page_;
  HttpReplies replies_;
};

// So that an input does the same whichever came before it.
void set_back(LiveServer& server) {
  const auto post = [&](const std::string& path, std::string_view body) {
    const int status = server.ask_as_another(post_request(path, std::string(body))).status;
    LUMEN_CHECK(status == 200);
  };
  post("/v2/lumen/engine", kUsualSettings);
  post("/v2/lumen/recording", R"({"action":"drop"})");
  post("/v2/systemsharedmemory/unregister", "");
  post("/v2/logging", R"({"log_info":true,"log_warning":true,"log_error":true})");
  post("/v2/repository/models/comes_and_goes/load", "");
  post("/v2/repository/models/plus_one/load", "");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Page page;
  static LiveServer server([](ServerOptions& options) {
    options.model_control = ModelControl::kExplicit;
    options.allows_recording = true;
    options.recording_bytes = size_t{1} << 20;
    options.shm_user_bytes = size_t{1} << 20;
  });
  Steps steps(data, size);
  Client(server, page).live(steps);
  set_back(server);
  return 0;
}
