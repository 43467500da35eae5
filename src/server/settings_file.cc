// config.json and the body of POST /v2/lumen/engine: nlohmann's parser over an iterator that counts
// lines, so that an error names the line of its key; each value is matched with its row of the
// table. Control plane; the heap. Errors: file:line, got, wanted, nearest name.
#include <lumen/base/nearest_name.h>
#include <lumen/base/text_file.h>
#include <lumen/server/settings.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <compare>
#include <map>
#include <utility>

namespace lumen::server {
namespace {

using json = nlohmann::ordered_json;  // the first error of a file is the one that is told

constexpr std::array<std::string_view, 2> kSections = {"engine", "server"};
// The longest body with every key in it is under 1 KiB.
constexpr size_t kMaxEngineSectionBytes = 64 * 1024;

struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  size_t* line;

  reference operator*() const noexcept { return *at; }
  CountingIterator& operator++() noexcept {
    if (*at++ == '\n') ++*line;
    return *this;
  }
  bool operator==(const CountingIterator& other) const noexcept { return at == other.at; }
};

std::string in_quotes(std::string_view text) { return std::string("'").append(text).append("'"); }

std::string text_of(const json& value) {
  if (value.is_structured()) return value.is_object() ? "an object" : "an array";
  return value.dump();
}

// A JSON text with the line of each of its keys.
struct Document {
  struct Place {
    std::string section;  // empty at the root, where the sections themselves stand
    std::string key;
    auto operator<=>(const Place&) const = default;
  };

  std::string_view name;  // of the text, in messages
  json root{};
  std::map<Place, size_t> lines{};

  [[nodiscard]] Status error(size_t line, const std::string& what) const {
    return Status::error(Code::kInvalidArgument, "%.*s:%zu: %s", static_cast<int>(name.size()),
                         name.data(), line, what.c_str());
  }
  [[nodiscard]] Status refuse(const Place& place, const std::string& why) const {
    return error(lines.at(place), in_quotes(place.key) + why);
  }
};

Result<Document> parse(std::string_view text, std::string_view name) {
  Document document{name};
  size_t line = 1;
  std::string section;
  Status twice;
  // When a key is reported no more is read than its closing quote, so `line` is the key's.
  const auto note_key = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event != json::parse_event_t::key || depth > 2) return true;
    const auto key = parsed.get<std::string>();
    if (depth == 1) section = key;
    const auto [at, is_new] = document.lines.insert({{depth == 1 ? "" : section, key}, line});
    if (!is_new && twice.ok()) {
      const std::string first = std::to_string(at->second);
      twice = document.error(line, in_quotes(key) + " is there twice, first on line " + first);
    }
    return true;
  };
  try {
    document.root = json::parse(CountingIterator{text.data(), &line},
                                CountingIterator{text.data() + text.size(), &line}, note_key);
  } catch (const json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 3, column 1: ..."
    const std::string_view what = error.what();
    return document.error(line, "no JSON: " + std::string(what.substr(what.find("] ") + 2)));
  }
  LUMEN_RETURN_IF_ERROR(twice);
  if (document.root.is_object()) return document;
  return document.error(line, "got " + text_of(document.root) + ", wanted an object");
}

std::string nearest_text(std::string_view name, std::span<const std::string_view> valid) {
  const std::string_view nearest = nearest_name(name, valid);
  if (!nearest.empty()) return "; the nearest is " + in_quotes(nearest);
  std::string text = "; there are ";
  for (const std::string_view one : valid) {
    text.append(one == valid.front() ? "" : ", ").append(one);
  }
  return text;
}

Status check_section(const Document& document, const std::string& key, const json& value) {
  const auto same = std::ranges::find(settings(), key, &Setting::key);
  if (same != settings().end()) {
    const std::string section = in_quotes(same->section);
    return document.refuse({"", key}, " stands outside of its section " + section);
  }
  if (std::ranges::find(kSections, key) == kSections.end()) {
    return document.refuse({"", key}, " is no section" + nearest_text(key, kSections));
  }
  if (value.is_object()) return {};
  return document.refuse({"", key}, ": got " + text_of(value) + ", wanted an object");
}

// The row of the table, or why there is none.
Result<const Setting*> row_of(const Document& document, const Document::Place& place) {
  std::string no_key = " is no key of " + in_quotes(place.section);
  std::vector<std::string_view> valid;
  for (const Setting& setting : settings()) {
    if (setting.section == place.section) valid.push_back(setting.key);
    if (setting.key != place.key) continue;
    if (setting.section == place.section) return &setting;
    return document.refuse(place, no_key + " but of " + in_quotes(setting.section));
  }
  return document.refuse(place, no_key + nearest_text(place.key, valid));
}

// Sets the document's values over `options`. `is_change`: it is a change while serving, of the
// section "engine" alone.
Result<ServerOptions> apply(const Document& document, ServerOptions options, bool is_change) {
  for (const auto& [section, values] : document.root.items()) {
    // The document that a GET gives has them, so that it can be changed and sent back.
    if (is_change && section == "models") continue;
    if (is_change && section != "engine") {
      return document.refuse({"", section}, " can't be here; wanted the section 'engine' alone");
    }
    LUMEN_RETURN_IF_ERROR(check_section(document, section, values));
    for (const auto& [key, value] : values.items()) {
      const Document::Place place{section, key};
      const auto row = row_of(document, place);
      if (!row.ok()) return row.status();
      const Setting& setting = **row;
      if (is_change && setting.change != SettingChange::kLive) {
        return document.refuse(place, " can't be changed while serving; restart with it");
      }
      const bool is_list = setting.values.is_list && value.is_array();
      if (!is_list && (setting.is_number ? !value.is_number_unsigned() : !value.is_string())) {
        const char* wanted = setting.is_number ? "a whole number, 0 or more" : "a string";
        if (setting.values.is_list) wanted = "a list";
        return document.refuse(place, ": got " + text_of(value) + ", wanted " + wanted);
      }
      const Status set = setting.set(
          options, setting.is_number || is_list ? value.dump() : value.get<std::string>());
      if (!set.ok()) return document.refuse(place, ": " + std::string(set.message()));
    }
  }
  return options;
}

}  // namespace

Result<ServerOptions> load_config(const std::filesystem::path& file, ServerOptions options) {
  const Result<std::string> text = read_file(file);
  if (!text.ok()) {
    return Status::error(Code::kNotFound, "%s: can't be read; wanted a config.json", file.c_str());
  }
  return parse_config(*text, file.native(), std::move(options));
}

Result<ServerOptions> parse_config(std::string_view text, std::string_view name,
                                   ServerOptions options) {
  const auto document = parse(text, name);
  return document.ok() ? apply(*document, std::move(options), false) : document.status();
}

Result<engine::EngineConfig> parse_engine_section(std::string_view json,
                                                  const engine::EngineConfig& base) {
  if (json.size() > kMaxEngineSectionBytes) {
    return Status::error(Code::kTooLarge, "body: got %zu bytes, wanted %zu at most", json.size(),
                         kMaxEngineSectionBytes);
  }
  auto document = parse(json, "body");
  if (document.ok() && !document->root.contains("engine")) {
    document = parse("{\"engine\": " + std::string(json) + "}", "body");  // no line more
  }
  if (!document.ok()) return document.status();
  ServerOptions options;
  options.engine = base;
  const auto changed = apply(*document, std::move(options), true);
  if (!changed.ok()) return changed.status();
  return changed->engine;
}

}  // namespace lumen::server
