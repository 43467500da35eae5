// config.json and the body of POST /v2/lumen/engine: entries of a document, each matched with its
// row of the table. Control plane; the heap. Says no by file:line, got, wanted, nearest name.
#include "serve/settings_check.h"
#include "serve/settings_document.h"

#include <lumen/base/nearest_name.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace lumen::serve {
namespace {

using Kind = SettingEntry::Kind;

constexpr std::string_view kSections[] = {"engine", "server"};
// The longest body with every key in it is under 1 KiB.
constexpr size_t kMaxEngineSectionBytes = 64 * 1024;

std::string in_quotes(std::string_view text) {
  std::string out = "'";
  out.append(text).append("'");
  return out;
}

Status refuse(std::string_view name, const SettingEntry& entry, const std::string& why) {
  return Status::error(Code::kInvalidArgument, "%.*s:%zu: %s%s", static_cast<int>(name.size()),
                       name.data(), entry.line, in_quotes(entry.key).c_str(), why.c_str());
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

const Setting* find_setting(std::string_view section, std::string_view key) {
  for (const Setting& setting : settings()) {
    if (setting.section == section && setting.key == key) return &setting;
  }
  return nullptr;
}

Status no_such_key(std::string_view name, const SettingEntry& entry, std::string_view section) {
  std::vector<std::string_view> valid;
  for (const Setting& setting : settings()) {
    if (setting.section == section) {
      valid.push_back(setting.key);
    } else if (setting.key == entry.key) {
      return refuse(
          name, entry,
          " is no key of " + in_quotes(section) + " but of " + in_quotes(setting.section));
    }
  }
  return refuse(name, entry,
                " is no key of " + in_quotes(section) + nearest_text(entry.key, valid));
}

Status apply_entry(std::string_view name, const SettingEntry& entry, const Setting& setting,
                   ServerOptions& options) {
  const bool is_number = setting.kind == SettingKind::kNumber;
  if (entry.kind != (is_number ? Kind::kNumber : Kind::kText)) {
    const std::string got = entry.kind == Kind::kText ? "\"" + entry.value + "\"" : entry.value;
    return refuse(
        name, entry,
        ": got " + got + ", wanted " + (is_number ? "a whole number, 0 or more" : "a string"));
  }
  std::string place(name);
  place.append(":").append(std::to_string(entry.line)).append(": ").append(in_quotes(entry.key));
  return set_and_check(setting, options, entry.value, place);
}

// An entry beside the sections.
Status check_root_entry(std::string_view name, const SettingEntry& entry) {
  for (const Setting& setting : settings()) {
    if (setting.key == entry.key) {
      return refuse(name, entry, " stands outside of its section " + in_quotes(setting.section));
    }
  }
  if (std::ranges::find(kSections, entry.key) == std::end(kSections)) {
    return refuse(name, entry, " is no section" + nearest_text(entry.key, kSections));
  }
  if (entry.kind != Kind::kSection) {
    return refuse(name, entry, ": got " + entry.value + ", wanted an object");
  }
  return {};
}

// An entry of the engine section, under whichever name it stands.
Status apply_live_entry(std::string_view name, const SettingEntry& entry, ServerOptions& options) {
  const Setting* setting = find_setting("engine", entry.key);
  if (setting == nullptr) return no_such_key(name, entry, "engine");
  if (setting->change != SettingChange::kLive) {
    return refuse(name, entry, " can't be changed while serving; restart with it");
  }
  return apply_entry(name, entry, *setting, options);
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
  const auto entries = parse_setting_entries(text, file.native());
  if (!entries.ok()) return entries.status();
  for (const SettingEntry& entry : *entries) {
    if (entry.section.empty()) {
      LUMEN_RETURN_IF_ERROR(check_root_entry(file.native(), entry));
      continue;
    }
    const Setting* setting = find_setting(entry.section, entry.key);
    if (setting == nullptr) return no_such_key(file.native(), entry, entry.section);
    LUMEN_RETURN_IF_ERROR(apply_entry(file.native(), entry, *setting, options));
  }
  return options;
}

Result<engine::EngineConfig> parse_engine_section(std::string_view json,
                                                  const engine::EngineConfig& base) {
  constexpr std::string_view kName = "body";
  if (json.size() > kMaxEngineSectionBytes) {
    return Status::error(Code::kTooLarge, "body: got %zu bytes, wanted %zu at most", json.size(),
                         kMaxEngineSectionBytes);
  }
  const auto entries = parse_setting_entries(json, kName);
  if (!entries.ok()) return entries.status();
  ServerOptions options;
  options.engine = base;
  const bool wrapped = std::ranges::find(*entries, "engine", &SettingEntry::key) != entries->end();
  for (const SettingEntry& entry : *entries) {
    if (wrapped && entry.section.empty()) {
      if (entry.key != "engine") {
        return refuse(kName, entry, " can't be here; wanted the section 'engine' alone");
      }
      LUMEN_RETURN_IF_ERROR(check_root_entry(kName, entry));
      continue;
    }
    LUMEN_RETURN_IF_ERROR(apply_live_entry(kName, entry, options));
  }
  return options.engine;
}

}  // namespace lumen::serve
