// See the header. JSON.
#include <lumen/models/known_costs.h>

#include <nlohmann/json.hpp>

#include <exception>
#include <stdexcept>
#include <utility>

namespace lumen::models {
namespace {

using Json = nlohmann::json;

Json to_json(const std::vector<SizeCost>& costs) {
  Json all = Json::array();
  for (const SizeCost& cost : costs) all.push_back({{"rows", cost.rows}, {"ns", cost.ns}});
  return all;
}

// Throws Json's exceptions, and for rows or a time of 0.
std::vector<SizeCost> size_costs(const Json& json) {
  std::vector<SizeCost> costs;
  for (const Json& cost : json) {
    costs.push_back({cost.at("rows").get<uint32_t>(), cost.at("ns").get<uint64_t>()});
    if (costs.back().rows == 0 || costs.back().ns == 0) throw std::out_of_range("a cost of 0");
  }
  return costs;
}

KnownCosts known_costs(const Json& json) {
  KnownCosts costs;
  if (const auto request = json.find("request"); request != json.end()) {
    costs.request = {.ns = request->at("ns").get<uint64_t>(),
                     .input_bytes = request->at("input_bytes").get<uint64_t>()};
    if (costs.request->ns == 0) throw std::out_of_range("a cost of 0");
  }
  for (const Json& one : json.at("gains_by_packing")) {
    costs.gains_by_packing[one.at("rows").get<uint32_t>()] = one.at("gains").get<bool>();
  }
  for (const Json& one : json.at("sizes")) {
    costs.sizes[one.at("sizes").get<std::vector<uint32_t>>()] = size_costs(one.at("costs"));
  }
  return costs;
}

}  // namespace

std::string to_text(const KnownCosts& costs) {
  Json gains = Json::array();
  for (const auto& [rows, is_gain] : costs.gains_by_packing) {
    gains.push_back({{"rows", rows}, {"gains", is_gain}});
  }
  Json sizes = Json::array();
  for (const auto& [key, of_key] : costs.sizes) {
    sizes.push_back({{"sizes", key}, {"costs", to_json(of_key)}});
  }
  Json json = {{"gains_by_packing", std::move(gains)}, {"sizes", std::move(sizes)}};
  if (costs.request) {
    json["request"] = {{"ns", costs.request->ns}, {"input_bytes", costs.request->input_bytes}};
  }
  return json.dump();
}

std::optional<KnownCosts> parse_known_costs(std::string_view text) {
  try {
    return known_costs(Json::parse(text));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace lumen::models
