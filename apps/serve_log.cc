// Makes and changes the logger. Main thread; the heap, as it is the control plane that logs.
#include "serve_log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace {

constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%e %l %v";

// spdlog's patterns can't escape, and a message quotes text of clients and files.
class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto level = spdlog::level::to_string_view(message.level);
    const std::string text(message.payload.data(), message.payload.size());
    const nlohmann::ordered_json line = {{"time", utc(message.time)},
                                         {"level", std::string(level.data(), level.size())},
                                         {"message", text}};
    const std::string json =
        line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    out.append(json.data(), json.data() + json.size());
  }
  [[nodiscard]] std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }

 private:
  static std::string utc(spdlog::log_clock::time_point time) {
    const auto ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
    const std::time_t seconds = spdlog::log_clock::to_time_t(time);
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    char date[32] = {};
    (void)std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts);
    char text[48] = {};
    (void)std::snprintf(text, sizeof(text), "%s.%03dZ", date, static_cast<int>(ms % 1000));
    return text;
  }
};

}  // namespace

void configure_log(lumen::server::LogLevel level, lumen::server::LogFormat format) {
  auto logger = spdlog::get("lumen");
  if (logger == nullptr) {
    logger = spdlog::stderr_logger_mt("lumen");
    spdlog::set_default_logger(logger);
  }
  if (format == lumen::server::LogFormat::kJson) {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    logger->set_pattern(kTextPattern);
  }
  logger->set_level(spdlog::level::from_str(std::string(name_of(level))));
}
