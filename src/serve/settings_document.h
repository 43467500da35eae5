// The JSON of config.json (and of the engine section alone) as a flat list of values with their
// lines. It knows JSON, not the settings.
// Threads: any. Memory: the heap. Says no: Status with the line.
#pragma once

#include <lumen/base/result.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::serve {

struct SettingEntry {
  enum class Kind : uint8_t { kSection, kText, kNumber, kOther };

  std::string section;  // empty at the root, where a section itself stands too
  std::string key;
  Kind kind;
  std::string value;  // what was read: digits, the text, or words such as "an array"
  size_t line;        // of the key, from 1
};

// `name` stands for the text in messages: "NAME:LINE: ...". A key that is there twice is refused.
[[nodiscard]] Result<std::vector<SettingEntry>> parse_setting_entries(std::string_view json,
                                                                      std::string_view name);

}  // namespace lumen::serve
