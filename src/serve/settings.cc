// The table and the strict reader of config.json. Control plane.
#include <lumen/serve/settings.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <numeric>
#include <sstream>
#include <vector>

namespace lumen::serve {
namespace {

int width(std::string_view text) noexcept { return static_cast<int>(text.size()); }

template <auto Member>
Status set_engine_number(ServerOptions& options, std::string_view value) {
  auto& target = options.engine.*Member;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), target);
  if (error == std::errc{} && end == value.data() + value.size()) return {};
  return Status::error(Code::kInvalidArgument, "got '%.*s', wanted a whole number, 0 or more",
                       width(value), value.data());
}

template <auto Member>
Status set_number(ServerOptions& options, std::string_view value) {
  auto& target = options.*Member;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), target);
  if (error == std::errc{} && end == value.data() + value.size()) return {};
  return Status::error(Code::kInvalidArgument, "got '%.*s', wanted a whole number, 0 or more",
                       width(value), value.data());
}

// A setting whose other values come with later work: what is not there is refused, not ignored.
Status accept_only(std::string_view value, std::string_view only) {
  if (value == only) return {};
  return Status::error(Code::kInvalidArgument, "got '%.*s', wanted '%.*s', the only one there is",
                       width(value), value.data(), width(only), only.data());
}

const Setting kSettings[] = {
    {"server", "http", SettingKind::kText, "HOST:PORT to listen on; port 0 picks a free one",
     [](ServerOptions& options, std::string_view value) {
       options.http_address = value;
       return Status();
     }},
    {"server", "model_repository", SettingKind::kText, "directory of <name>/<version>/model.onnx",
     [](ServerOptions& options, std::string_view value) {
       options.model_repository = value;
       return Status();
     }},
    {"server", "io_threads", SettingKind::kNumber, "event loops, each with its own listener",
     set_number<&ServerOptions::io_thread_count>},
    {"server", "max_body_bytes", SettingKind::kNumber, "largest request body",
     set_number<&ServerOptions::max_body_bytes>},
    {"server", "max_connections", SettingKind::kNumber, "open connections an I/O thread",
     set_number<&ServerOptions::max_connections>},
    {"server", "max_active_requests", SettingKind::kNumber, "requests in memory an I/O thread",
     set_number<&ServerOptions::max_active_requests>},
    {"engine", "thread_count", SettingKind::kNumber, "workers, each with an instance per model",
     set_engine_number<&engine::EngineConfig::thread_count>},
    {"engine", "queue_capacity", SettingKind::kNumber,
     "requests that may wait for a worker, a power of two; more are answered 429",
     set_engine_number<&engine::EngineConfig::queue_capacity>},
    {"engine", "queue_type", SettingKind::kText, "how requests reach the workers: mpmc",
     [](ServerOptions&, std::string_view value) { return accept_only(value, "mpmc"); }},
    {"engine", "allocator_type", SettingKind::kText, "where requests live: lumen_arena",
     [](ServerOptions&, std::string_view value) { return accept_only(value, "lumen_arena"); }},
};

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j - 1] + 1, row[j] + 1, substitute}));
    }
  }
  return row.back();
}

std::string nearest(std::string_view wrong, std::span<const std::string_view> valid) {
  return std::string(*std::ranges::min_element(
      valid, {}, [wrong](std::string_view candidate) { return edit_distance(wrong, candidate); }));
}

// nlohmann keeps no positions; a key stands in quotes, and the first such place is the one to look
// at, since keys are unique over both sections.
size_t line_of(std::string_view text, std::string_view key) {
  // Appended, not added up: g++ 12 sees overlaps in operator+ that aren't there (-Wrestrict).
  std::string quoted = "\"";
  quoted.append(key).append("\"");
  const size_t at = text.find(quoted);
  const std::string_view before = text.substr(0, at == std::string_view::npos ? 0 : at);
  return 1 + static_cast<size_t>(std::ranges::count(before, '\n'));
}

struct ConfigText {
  const std::filesystem::path& file;
  std::string text;

  Status fail(std::string_view key, const std::string& what) const {
    return Status::error(Code::kInvalidArgument, "%s:%zu: %s", file.c_str(), line_of(text, key),
                         what.c_str());
  }
};

Status apply_entry(const ConfigText& config, const std::string& section, const std::string& key,
                   const nlohmann::json& value, ServerOptions& options) {
  std::vector<std::string_view> valid;
  for (const Setting& setting : kSettings) {
    if (setting.section == section) valid.push_back(setting.key);
    if (setting.section != section || setting.key != key) continue;
    const bool is_number = setting.kind == SettingKind::kNumber;
    if (is_number ? !value.is_number_unsigned() : !value.is_string()) {
      return config.fail(key, "'" + key + "': got " + value.dump() + ", wanted " +
                                  (is_number ? "a whole number, 0 or more" : "a string"));
    }
    const std::string text = is_number ? value.dump() : value.get<std::string>();
    const Status status = setting.set(options, text);
    if (!status.ok()) return config.fail(key, "'" + key + "': " + std::string(status.message()));
    return {};
  }
  return config.fail(key, "'" + key + "' is no key of '" + section + "'; the nearest is '" +
                              nearest(key, valid) + "'");
}

}  // namespace

std::span<const Setting> settings() noexcept { return kSettings; }

std::string flag_name(const Setting& setting) {
  std::string name = "--";
  name += setting.key;
  std::ranges::replace(name, '_', '-');
  return name;
}

Status apply_setting(const Setting& setting, ServerOptions& options, std::string_view value) {
  const Status status = setting.set(options, value);
  if (status.ok()) return status;
  return Status::error(Code::kInvalidArgument, "%s: %.*s", flag_name(setting).c_str(),
                       width(status.message()), status.message().data());
}

Result<ServerOptions> load_config(const std::filesystem::path& file, ServerOptions options) {
  std::ifstream stream(file);
  if (!stream) {
    return Status::error(Code::kNotFound, "%s: can't be read; wanted a config.json", file.c_str());
  }
  const ConfigText config{file, std::string(std::istreambuf_iterator<char>(stream), {})};
  nlohmann::json root;
  try {
    root = nlohmann::json::parse(config.text);
  } catch (const nlohmann::json::parse_error& error) {  // says line and column itself
    return Status::error(Code::kInvalidArgument, "%s: %s", file.c_str(), error.what());
  }
  if (!root.is_object()) {
    return config.fail("", "wanted an object with the sections \"engine\" and \"server\"");
  }
  constexpr std::string_view kSections[] = {"engine", "server"};
  for (const auto& [section, entries] : root.items()) {
    if (std::ranges::find(kSections, section) == std::end(kSections)) {
      return config.fail(section, "'" + section + "' is no section; the nearest is '" +
                                      nearest(section, kSections) + "'");
    }
    if (!entries.is_object()) return config.fail(section, "'" + section + "': wanted an object");
    for (const auto& [key, value] : entries.items()) {
      LUMEN_RETURN_IF_ERROR(apply_entry(config, section, key, value, options));
    }
  }
  return options;
}

}  // namespace lumen::serve
