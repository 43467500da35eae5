// config.json and the body of POST /v2/lumen/engine: nlohmann's event parser over an iterator that counts
// lines (when it reports a key it has read no further than the key's closing quote, so the count is the
// key's line) makes a flat list of entries, each of which is matched with its row of the table. Control
// plane; the heap. Errors: file:line, got, wanted, nearest name.
#include <lumen/base/nearest_name.h>
#include <lumen/serve/settings.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

namespace lumen::serve {
namespace {

using nlohmann::json;

constexpr std::string_view kSections[] = {"engine", "server"};
// The longest body with every key in it is under 1 KiB.
constexpr size_t kMaxEngineSectionBytes = 64 * 1024;

enum class Kind : uint8_t { kSection, kText, kNumber, kOther };

struct Entry {
  std::string section;  // empty at the root, where a section itself stands too
  std::string key;
  Kind kind;
  std::string value;  // what was read: digits, the text, or words such as "an array"
  size_t line;        // of the key, from 1
};

Status error_at(std::string_view name, size_t line, const std::string& what) {
  return Status::error(Code::kInvalidArgument, "%.*s:%zu: %s", static_cast<int>(name.size()),
                       name.data(), line, what.c_str());
}

std::string in_quotes(std::string_view text) { return std::string("'").append(text).append("'"); }

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

class Collector final : public nlohmann::json_sax<json> {
 public:
  std::string_view name;  // of the text, in messages
  size_t line = 1;
  std::vector<Entry> entries{};
  Status status{};

  bool null() override { return value(Kind::kOther, "null"); }
  bool boolean(bool v) override { return value(Kind::kOther, v ? "true" : "false"); }
  // Below zero: the others come unsigned.
  bool number_integer(number_integer_t v) override {
    return value(Kind::kOther, std::to_string(v));
  }
  bool number_unsigned(number_unsigned_t v) override {
    return value(Kind::kNumber, std::to_string(v));
  }
  // Too large for 64 bits comes here too.
  bool number_float(number_float_t, const string_t& raw) override {
    return value(Kind::kOther, raw);
  }
  bool string(string_t& v) override { return value(Kind::kText, std::move(v)); }
  bool binary(binary_t&) override { return value(Kind::kOther, "bytes"); }
  bool start_array(size_t) override { return begin(false); }
  bool end_array() override { return end(); }
  bool start_object(size_t) override { return begin(true); }
  bool end_object() override { return end(); }

  bool key(string_t& k) override {
    if (refused_depth_ > 0) return true;
    key_ = std::move(k);
    key_line_ = line;
    const auto same = std::ranges::find_if(entries, [&](const Entry& entry) {
      return entry.section == section() && entry.key == key_;
    });
    if (same == entries.end()) return true;
    const std::string first = std::to_string(same->line);
    return fail(in_quotes(key_) + " is there twice, first on line " + first);
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 3, column 1: ..."
    std::string_view what = error.what();
    const size_t bracket = what.find("] ");
    if (bracket != std::string_view::npos) what.remove_prefix(bracket + 2);
    return fail("no JSON: " + std::string(what));
  }

 private:
  bool fail(const std::string& what) {
    status = error_at(name, line, what);
    return false;
  }
  [[nodiscard]] std::string section() const { return depth_ == 2 ? section_ : std::string(); }

  bool value(Kind kind, std::string text) {
    if (refused_depth_ > 0) return true;
    if (depth_ == 0) return fail("got " + text + ", wanted an object");
    entries.push_back({section(), key_, kind, std::move(text), key_line_});
    return true;
  }

  bool begin(bool is_object) {
    const bool is_section = is_object && depth_ < 2;
    if (refused_depth_ > 0 || !is_section) {
      const bool goes_on = value(Kind::kOther, is_object ? "an object" : "an array");
      ++refused_depth_;
      return goes_on;
    }
    if (depth_ == 1) {
      (void)value(Kind::kSection, "an object");
      section_ = key_;
    }
    ++depth_;
    return true;
  }

  bool end() {
    --(refused_depth_ > 0 ? refused_depth_ : depth_);
    return true;
  }

  std::string section_, key_;
  size_t key_line_ = 1;
  size_t depth_ = 0;          // 1: among the sections, 2: among the keys of one
  size_t refused_depth_ = 0;  // inside a value that is refused as a whole
};

// `name` stands for the text in messages. A key that is there twice is refused.
Result<std::vector<Entry>> parse(std::string_view text, std::string_view name) {
  Collector collector;
  collector.name = name;
  const CountingIterator first{text.data(), &collector.line};
  const CountingIterator last{text.data() + text.size(), &collector.line};
  if (json::sax_parse(first, last, &collector)) return std::move(collector.entries);
  return collector.status.ok() ? error_at(name, collector.line, "no JSON") : collector.status;
}

Status refuse(std::string_view name, const Entry& entry, const std::string& why) {
  return error_at(name, entry.line, in_quotes(entry.key) + why);
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

// The row that an entry names, or why there is none.
Result<const Setting*> row_of(std::string_view name, const Entry& entry) {
  std::string no_key = " is no key of " + in_quotes(entry.section);
  std::vector<std::string_view> valid;
  for (const Setting& setting : settings()) {
    if (setting.section == entry.section) valid.push_back(setting.key);
    if (setting.key != entry.key) continue;
    if (setting.section == entry.section) return &setting;
    return refuse(name, entry, no_key.append(" but of ").append(in_quotes(setting.section)));
  }
  return refuse(name, entry, no_key.append(nearest_text(entry.key, valid)));
}

Status apply(std::string_view name, const Entry& entry, const Setting& setting,
             ServerOptions& options) {
  const bool is_number = setting.kind == SettingKind::kNumber;
  if (entry.kind != (is_number ? Kind::kNumber : Kind::kText)) {
    const std::string got = entry.kind == Kind::kText ? "\"" + entry.value + "\"" : entry.value;
    const char* wanted = is_number ? "a whole number, 0 or more" : "a string";
    return refuse(name, entry, ": got " + got + ", wanted " + wanted);
  }
  const Status status = setting.set(options, entry.value);
  return status.ok() ? status : refuse(name, entry, ": " + std::string(status.message()));
}

// An entry beside the sections.
Status check_root_entry(std::string_view name, const Entry& entry) {
  for (const Setting& setting : settings()) {
    if (setting.key == entry.key) {
      return refuse(name, entry, " stands outside of its section " + in_quotes(setting.section));
    }
  }
  if (std::ranges::find(kSections, entry.key) == std::end(kSections)) {
    return refuse(name, entry, " is no section" + nearest_text(entry.key, kSections));
  }
  if (entry.kind == Kind::kSection) return {};
  return refuse(name, entry, ": got " + entry.value + ", wanted an object");
}

// What the text says stands over `options`. `is_change`: it is a change while serving, of the section
// "engine" alone, which need not be named.
Result<ServerOptions> apply_all(std::string_view text, std::string_view name, ServerOptions options,
                                bool is_change) {
  auto entries = parse(text, name);
  if (!entries.ok()) return entries.status();
  const bool is_bare =
      is_change && std::ranges::find(*entries, "engine", &Entry::key) == entries->end();
  for (Entry& entry : *entries) {
    if (is_bare) entry.section = "engine";
    if (entry.section.empty()) {
      if (is_change && entry.key != "engine") {
        return refuse(name, entry, " can't be here; wanted the section 'engine' alone");
      }
      LUMEN_RETURN_IF_ERROR(check_root_entry(name, entry));
      continue;
    }
    const auto row = row_of(name, entry);
    if (!row.ok()) return row.status();
    if (is_change && (*row)->change != SettingChange::kLive) {
      return refuse(name, entry, " can't be changed while serving; restart with it");
    }
    LUMEN_RETURN_IF_ERROR(apply(name, entry, **row, options));
  }
  return options;
}

}  // namespace

Result<ServerOptions> load_config(const std::filesystem::path& file, ServerOptions options) {
  std::error_code ignored;
  std::ifstream stream(file);
  // Reading a directory throws instead of setting a bit.
  if (!stream || std::filesystem::is_directory(file, ignored)) {
    return Status::error(Code::kNotFound, "%s: can't be read; wanted a config.json", file.c_str());
  }
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  return parse_config(text, file.native(), std::move(options));
}

Result<ServerOptions> parse_config(std::string_view text, std::string_view name,
                                   ServerOptions options) {
  return apply_all(text, name, std::move(options), false);
}

Result<engine::EngineConfig> parse_engine_section(std::string_view json,
                                                  const engine::EngineConfig& base) {
  if (json.size() > kMaxEngineSectionBytes) {
    return Status::error(Code::kTooLarge, "body: got %zu bytes, wanted %zu at most", json.size(),
                         kMaxEngineSectionBytes);
  }
  ServerOptions options;
  options.engine = base;
  const auto changed = apply_all(json, "body", std::move(options), true);
  if (!changed.ok()) return changed.status();
  return changed->engine;
}

}  // namespace lumen::serve
