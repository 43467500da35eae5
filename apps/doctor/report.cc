// Columns: name, value, state; below, the mend and its gain. Threads, memory and errors: see the
// header.
#include "doctor/report.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdio>

namespace lumen::doctor {
namespace {

constexpr size_t kNameColumns = 19;
constexpr size_t kStateColumns = 7;  // "unknown"
constexpr size_t kValueColumns = kColumns - kNameColumns - 1 - kStateColumns;

std::string format(const char* pattern, double value, std::string_view unit) {
  std::array<char, 64> out;
  const int size = std::snprintf(out.data(), out.size(), pattern, value);
  std::string text(out.data(), static_cast<size_t>(size));
  if (!unit.empty()) text.append(" ").append(unit);
  return text;
}

std::string scaled(double value, double step, const std::vector<std::string_view>& units) {
  size_t unit = 0;
  for (; value >= step && unit + 1 < units.size(); ++unit) value /= step;
  return format(unit == 0 ? "%.0f" : "%.1f", value, units[unit]);
}

std::string shown(const Finding& finding) {
  std::string value;
  if (const auto* text = std::get_if<std::string>(&finding.value)) {
    value = *text;
  } else {
    const double number = std::get<double>(finding.value);
    if (finding.unit == "bytes") {
      value = scaled(number, 1024, {"bytes", "KiB", "MiB", "GiB", "TiB"});
    } else if (finding.unit == "ns") {
      value = scaled(number, 1000, {"ns", "us", "ms", "s"});
    } else {
      value = format("%.7g", number, finding.unit);
    }
  }
  if (finding.note.empty()) return value;
  // A number and its note read as one: "2 usable, of 2 online".
  const bool is_text = std::holds_alternative<std::string>(finding.value);
  return value + (is_text || !finding.unit.empty() ? ", " : " ") + finding.note;
}

// Lines of at most `columns` where there are blanks to break at.
std::vector<std::string> wrap(std::string_view text, size_t columns) {
  std::vector<std::string> lines;
  while (text.size() > columns) {
    size_t end = text.rfind(' ', columns);
    if (end == std::string_view::npos || end == 0) end = columns;
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    if (text.starts_with(' ')) text.remove_prefix(1);
  }
  lines.emplace_back(text);
  return lines;
}

std::string coloured(State state, bool with_colour) {
  std::string name(name_of(state));
  if (!with_colour) return name;
  constexpr std::array<std::string_view, 3> kColours = {"\033[32m", "\033[33m", "\033[35m"};
  return std::string(kColours[static_cast<size_t>(state)]) + name + "\033[0m";
}

void add_line(std::string& out, const Line& line, bool with_colour) {
  const std::string indent(kNameColumns, ' ');
  const std::vector<std::string> value = wrap(shown(line.finding), kValueColumns);
  out += line.name + std::string(kNameColumns - line.name.size(), ' ');
  out += value.front() + std::string(kValueColumns - value.front().size() + 1, ' ');
  out += coloured(line.finding.state, with_colour) + "\n";
  for (size_t i = 1; i < value.size(); ++i) out += indent + value[i] + "\n";
  if (line.finding.mend.empty()) return;
  // With less indentation, so that most commands stay whole.
  for (const std::string& part : wrap(line.finding.mend, kColumns - 6))
    out += "    > " + part + "\n";
  for (const std::string& part : wrap(line.finding.gain, kColumns - 6))
    out += "      " + part + "\n";
}

}  // namespace

size_t count_of(const std::vector<Line>& lines, State state) noexcept {
  return static_cast<size_t>(std::ranges::count_if(
      lines, [state](const Line& line) { return line.finding.state == state; }));
}

std::string to_text(const std::vector<Line>& lines, bool with_colour) {
  std::string out;
  for (const Line& line : lines) add_line(out, line, with_colour);
  const char* separator = "\n";
  for (const State state : {State::kOk, State::kWarn, State::kUnknown}) {
    out.append(separator).append(std::to_string(count_of(lines, state))).append(" ");
    out.append(name_of(state));
    separator = ", ";
  }
  out += "\n";
  return out;
}

nlohmann::ordered_json to_json(const std::vector<Line>& lines) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const Line& line : lines) {
    const Finding& finding = line.finding;
    nlohmann::ordered_json one{{"name", line.name}};
    if (const auto* number = std::get_if<double>(&finding.value)) {
      one["value"] = *number;
      if (!finding.unit.empty()) one["unit"] = finding.unit;
    } else {
      one["value"] = std::get<std::string>(finding.value);
    }
    if (!finding.note.empty()) one["note"] = finding.note;
    one["status"] = name_of(finding.state);
    if (!finding.mend.empty()) {
      one["mend"] = finding.mend;
      one["gain"] = finding.gain;
    }
    array.push_back(std::move(one));
  }
  return array;
}

}  // namespace lumen::doctor
