// nlohmann's event parser over an iterator that counts lines: when it reports a key, it has read no
// further than the key's closing quote, so the count is the key's line. Any thread; the heap.
#include "serve/settings_document.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace lumen::serve {
namespace {

using nlohmann::json;
using Kind = SettingEntry::Kind;

int width(std::string_view text) noexcept { return static_cast<int>(text.size()); }

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
  Collector(std::string_view name, const size_t& line) : name_(name), line_(&line) {}

  // At the place that was read last.
  Status fail(const std::string& what) { return fail(*line_, what); }
  Status take_status() { return std::exchange(status_, Status()); }
  std::vector<SettingEntry> take_entries() { return std::move(entries_); }

  bool null() override { return value(Kind::kOther, "null"); }
  bool boolean(bool v) override { return value(Kind::kOther, v ? "true" : "false"); }
  bool number_integer(number_integer_t v) override {
    return value(Kind::kOther, std::to_string(v));  // below zero: the others come unsigned
  }
  bool number_unsigned(number_unsigned_t v) override {
    return value(Kind::kNumber, std::to_string(v));
  }
  bool number_float(number_float_t, const string_t& raw) override {
    return value(Kind::kOther, raw);  // too large for 64 bits comes here too
  }
  bool string(string_t& v) override { return value(Kind::kText, std::move(v)); }
  bool binary(binary_t&) override { return value(Kind::kOther, "bytes"); }
  bool start_array(size_t) override { return begin(false); }
  bool end_array() override { return end(); }
  bool start_object(size_t) override { return begin(true); }
  bool end_object() override { return end(); }

  bool key(string_t& k) override {
    if (depth_ > 2) return true;  // inside a value that is refused as a whole
    key_ = std::move(k);
    key_line_ = *line_;
    const std::string_view section = depth_ == 2 ? std::string_view(section_) : std::string_view();
    const auto same = std::ranges::find_if(entries_, [&](const SettingEntry& entry) {
      return entry.section == section && entry.key == key_;
    });
    if (same == entries_.end()) return true;
    status_ = fail(key_line_,
                   "'" + key_ + "' is there twice, first on line " + std::to_string(same->line));
    return false;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 3, column 1: ..."
    std::string_view what = error.what();
    const size_t bracket = what.find("] ");
    if (bracket != std::string_view::npos) what.remove_prefix(bracket + 2);
    status_ = fail(*line_, "no JSON: " + std::string(what));
    return false;
  }

 private:
  Status fail(size_t line, const std::string& what) const {
    return Status::error(Code::kInvalidArgument, "%.*s:%zu: %s", width(name_), name_.data(), line,
                         what.c_str());
  }

  bool value(Kind kind, std::string text) {
    if (depth_ == 0) {
      status_ = fail("got " + text + ", wanted an object");
      return false;
    }
    if (depth_ > 2) return true;
    entries_.push_back(
        {depth_ == 2 ? section_ : std::string(), key_, kind, std::move(text), key_line_});
    return true;
  }

  bool begin(bool object) {
    if (depth_ == 0 && !object) return value(Kind::kOther, "an array");
    if (depth_ == 1 && object) {
      section_ = key_;
      entries_.push_back({std::string(), key_, Kind::kSection, "an object", key_line_});
    } else if (depth_ == 1) {
      (void)value(Kind::kOther, "an array");
      ++depth_;  // its values are none of a section: two steps down at once
      skipped_ = true;
    } else if (depth_ == 2) {
      (void)value(Kind::kOther, object ? "an object" : "an array");
    }
    ++depth_;
    return true;
  }

  bool end() {
    --depth_;
    if (skipped_ && depth_ == 2) {
      --depth_;
      skipped_ = false;
    }
    return true;
  }

  std::string_view name_;
  const size_t* line_;
  std::vector<SettingEntry> entries_;
  std::string section_, key_;
  size_t key_line_ = 1;
  size_t depth_ = 0;  // 1: among the sections, 2: among the keys of one
  bool skipped_ = false;
  Status status_;
};

}  // namespace

Result<std::vector<SettingEntry>> parse_setting_entries(std::string_view text,
                                                        std::string_view name) {
  size_t line = 1;
  Collector collector(name, line);
  const CountingIterator first{text.data(), &line}, last{text.data() + text.size(), &line};
  if (json::sax_parse(first, last, &collector)) return collector.take_entries();
  Status status = collector.take_status();
  return status.ok() ? collector.fail("no JSON") : status;
}

}  // namespace lumen::serve
