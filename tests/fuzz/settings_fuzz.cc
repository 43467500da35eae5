// parse_config and parse_engine_section: accepted values lie within the bounds of their rows and
// are the same when they are read again; a refusal names the file or the body, in one answer for
// one text.
#include <lumen/server/settings.h>

#include "fuzz/fuzz_support.h"

#include <string>

using lumen::Result;
using lumen::engine::EngineConfig;
using lumen::fuzz::Copy;
using lumen::server::ServerOptions;
using lumen::server::Setting;

namespace {

void check_taken(const ServerOptions& options) {
  for (const Setting& setting : lumen::server::settings()) {
    ServerOptions again = options;
    const std::string value = setting.get(options);
    // Text that says "as it was" has no word of its own: an empty path can't be set.
    if (value.empty()) continue;
    LUMEN_CHECK(setting.set(again, value).ok());
    LUMEN_CHECK(setting.get(again) == value);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Copy copy(std::string_view(reinterpret_cast<const char*>(data), size));
  const Result<ServerOptions> read = lumen::server::parse_config(copy.view(), "config.json", {});
  if (read.ok()) {
    check_taken(*read);
  } else {
    LUMEN_CHECK(read.status().message().starts_with("config.json"));
    const Result<ServerOptions> again = lumen::server::parse_config(copy.view(), "config.json", {});
    LUMEN_CHECK(!again.ok() && again.status().message() == read.status().message());
  }
  const Result<EngineConfig> engine = lumen::server::parse_engine_section(copy.view(), {});
  if (engine.ok()) {
    LUMEN_CHECK(engine->check().ok());
  } else {
    LUMEN_CHECK(engine.status().message().starts_with("body"));
  }
  return 0;
}
