// Medians and tables. Any thread; the heap.
#include <lumen/client/matrix_report.h>

#include "client/text.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace lumen::client {

namespace {

using Json = nlohmann::ordered_json;

// Fits a table's cell or a CSV field, for any text of a server.
std::string one_line(std::string text, std::string_view banned) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || banned.find(c) != std::string_view::npos) c = ' ';
  }
  return text;
}

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

// Of each column the value of every round.
Json raw_rounds(const std::vector<MatrixValues>& rounds) {
  Json json = Json::object();
  for (size_t i = 0; i < kColumns.size(); ++i) {
    Json& values = json[std::string(kColumns[i].key)] = Json::array();
    for (const MatrixValues& round : rounds) values.push_back(json_of(round.values[i]));
  }
  return json;
}

}  // namespace

MatrixValues medians(const std::vector<MatrixValues>& rounds) {
  MatrixValues result;
  for (size_t i = 0; i < kColumns.size(); ++i) {
    std::vector<double> values;
    for (const MatrixValues& round : rounds) {
      if (round.values[i]) values.push_back(*round.values[i]);
    }
    if (values.empty()) continue;
    std::ranges::sort(values);
    const size_t middle = values.size() / 2;
    const bool even = values.size() % 2 == 0;
    result.values[i] = even ? (values[middle - 1] + values[middle]) / 2 : values[middle];
  }
  return result;
}

std::string to_markdown(const std::vector<MatrixRow>& rows) {
  std::string text = "| queue | allocator |";
  std::string rule = "|---|---|";
  for (const Column& column : kColumns) {
    text.append(" ").append(column.heading).append(" |");
    rule += "---:|";
  }
  text += "\n" + rule + "\n";
  for (const MatrixRow& row : rows) {
    text += "| " + row.queue_type + " | " + row.allocator_type + " |";
    for (size_t i = 0; i < kColumns.size(); ++i) {
      if (!row.error.empty()) {
        text += i == 0 ? " failed: " + one_line(row.error, "|") + " |" : " |";
      } else if (row.values.values[i]) {
        text += client::text_of(" %.*f |", kColumns[i].decimals, *row.values.values[i]);
      } else {
        text += " n/a |";
      }
    }
    text += "\n";
  }
  return text;
}

std::string to_csv(const std::vector<MatrixRow>& rows) {
  std::string text = "queue_type,allocator_type";
  for (const Column& column : kColumns) text.append(",").append(column.key);
  text += ",error\n";
  for (const MatrixRow& row : rows) {
    text += row.queue_type + "," + row.allocator_type;
    for (const auto& value : row.values.values)
      text += value ? client::text_of(",%.3f", *value) : ",";
    text.append(",");
    if (!row.error.empty()) text.append("\"").append(one_line(row.error, "\"")).append("\"");
    text.append("\n");
  }
  return text;
}

Json to_json(const MatrixPlan& plan, const std::vector<MatrixRow>& rows) {
  Json json = {{"model", plan.model},
               {"requests", plan.requests},
               {"clients", plan.clients},
               {"rounds", plan.rounds},
               {"rows", Json::array()}};
  for (const MatrixRow& row : rows) {
    Json entry = {{"queue_type", row.queue_type}, {"allocator_type", row.allocator_type}};
    for (size_t i = 0; i < kColumns.size(); ++i) {
      entry[std::string(kColumns[i].key)] = json_of(row.values.values[i]);
    }
    entry["rounds"] = raw_rounds(row.rounds);
    entry["error"] = row.error.empty() ? Json(nullptr) : Json(row.error);
    json["rows"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace lumen::client
