// Reads the words of a mix. Control plane; the heap; as mix_spec.h says.
#include <lumen/client/mix_spec.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdlib>
#include <optional>
#include <utility>

namespace lumen::client {

namespace {

constexpr double kMostClients = 10'000;
constexpr double kLeastRate = 0.001;
constexpr double kMostRate = 1e8;

[[gnu::format(printf, 1, 2)]] Status refuse(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Status status = Status::verror(Code::kInvalidArgument, format, arguments);
  va_end(arguments);
  return status;
}

std::optional<double> number_of(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string names_of(const std::vector<MixModel>& models) {
  std::string names;
  for (const MixModel& model : models) {
    if (!names.empty()) names += ", ";
    names += model.name;
  }
  return names;
}

Result<std::vector<MixModel>> parse_models(const std::vector<std::string>& words) {
  std::vector<MixModel> models;
  for (const std::string& word : words) {
    const size_t colon = word.rfind(':');
    MixModel model;
    model.name = word.substr(0, colon);
    if (model.name.empty()) return refuse("--mix '%s': no model; wanted NAME:WEIGHT", word.c_str());
    if (colon != std::string::npos) {
      const auto weight = number_of(word.substr(colon + 1));
      if (!weight || *weight <= 0) {
        return refuse("--mix %s: its weight is '%s'; wanted a number above 0", word.c_str(),
                      word.substr(colon + 1).c_str());
      }
      model.weight = *weight;
    }
    if (std::ranges::find(models, model.name, &MixModel::name) != models.end()) {
      return refuse("--mix: model '%s' is there twice; wanted each once", model.name.c_str());
    }
    models.push_back(std::move(model));
  }
  return models;
}

// "32", or "mlp:32" for one model: the words of --clients and of --rate.
struct NumberWord {
  std::string model;  // empty: of all
  double number = 0;
};

Result<NumberWord> parse_number_word(const char* option, const std::string& word, double least,
                                     double most) {
  const size_t colon = word.rfind(':');
  NumberWord found;
  if (colon != std::string::npos) found.model = word.substr(0, colon);
  const auto number = number_of(colon == std::string::npos ? word : word.substr(colon + 1));
  if (!number || *number < least || *number > most || colon == 0) {
    return refuse("%s %s: wanted %g to %g, or NAME:N for a model of --mix", option, word.c_str(),
                  least, most);
  }
  found.number = *number;
  return found;
}

// Of an option's words either all name a model or none does.
Result<std::vector<NumberWord>> parse_words(const char* option,
                                            const std::vector<std::string>& words, double least,
                                            double most) {
  std::vector<NumberWord> found;
  for (const std::string& word : words) {
    auto one = parse_number_word(option, word, least, most);
    if (!one.ok()) return one.status();
    if (!found.empty() && found.front().model.empty() != one->model.empty()) {
      return refuse("%s %s: some have a model and some have not; wanted NAME:N for each, or none",
                    option, word.c_str());
    }
    found.push_back(std::move(*one));
  }
  return found;
}

Result<std::vector<NumberWord>> parse_clients_words(const std::vector<std::string>& words) {
  auto found = parse_words("--clients", words, 1, kMostClients);
  if (!found.ok()) return found;
  for (const NumberWord& one : *found) {
    if (one.number != std::floor(one.number)) {
      return refuse("--clients %g: wanted a whole number", one.number);
    }
  }
  return found;
}

// Gives each of the words' numbers to its model.
template <typename Number>
Status assign(const char* option, const std::vector<NumberWord>& words,
              std::vector<MixModel>& models, Number MixModel::* member) {
  for (const NumberWord& word : words) {
    const auto found = std::ranges::find(models, word.model, &MixModel::name);
    if (found == models.end()) {
      return refuse("%s %s:%g: the mix has no model '%s'; it has %s", option, word.model.c_str(),
                    word.number, word.model.c_str(), names_of(models).c_str());
    }
    if ((*found).*member != 0) {
      return refuse("%s: model '%s' is there twice; wanted each once", option, word.model.c_str());
    }
    (*found).*member = static_cast<Number>(word.number);
  }
  return {};
}

Status assign_rates(const std::vector<NumberWord>& words, std::vector<MixModel>& models) {
  if (words.empty() || !words.front().model.empty()) {
    return assign("--rate", words, models, &MixModel::rate);
  }
  double sum = 0;
  for (const MixModel& model : models) sum += model.weight;
  for (MixModel& model : models) model.rate = words.front().number * model.weight / sum;
  return {};
}

// Each model has clients of its own where they are not shared.
Status complete(std::vector<MixModel>& models) {
  for (MixModel& model : models) {
    if (model.clients != 0) continue;
    if (model.rate <= 0) {
      return refuse(
          "--mix: model '%s' has neither clients nor a rate of its own, as others have; wanted "
          "--clients %s:N or --rate %s:R",
          model.name.c_str(), model.name.c_str(), model.name.c_str());
    }
    model.clients = kOpenLoopClients;
  }
  return {};
}

}  // namespace

Result<std::vector<uint32_t>> parse_clients(const std::vector<std::string>& words) {
  const auto found = parse_clients_words(words);
  if (!found.ok()) return found.status();
  std::vector<uint32_t> clients;
  if (words.empty()) clients.assign(kDefaultClients.begin(), kDefaultClients.end());
  for (const NumberWord& word : *found) {
    if (!word.model.empty()) {
      return refuse("--clients %s:%g: there is no --mix; wanted a number", word.model.c_str(),
                    word.number);
    }
    clients.push_back(static_cast<uint32_t>(word.number));
  }
  return clients;
}

Result<double> parse_rate(const std::vector<std::string>& words) {
  const auto found = parse_words("--rate", words, kLeastRate, kMostRate);
  if (!found.ok()) return found.status();
  if (found->empty()) return 0.0;
  if (found->size() == 1 && found->front().model.empty()) return found->front().number;
  return refuse("--rate %s: without --mix there is one model; wanted a number",
                words.front().c_str());
}

Result<MixSpec> parse_mix(const std::vector<std::string>& mix,
                          const std::vector<std::string>& clients,
                          const std::vector<std::string>& rate) {
  MixSpec spec;
  auto models = parse_models(mix);
  if (!models.ok()) return models.status();
  spec.models = std::move(*models);
  const auto client_words = parse_clients_words(clients);
  if (!client_words.ok()) return client_words.status();
  const auto rate_words = parse_words("--rate", rate, kLeastRate, kMostRate);
  if (!rate_words.ok()) return rate_words.status();
  const bool has_total_rate = !rate_words->empty() && rate_words->front().model.empty();
  if (has_total_rate && rate_words->size() > 1) {
    return refuse("--rate: %zu numbers; wanted one of all models, or NAME:R for each",
                  rate_words->size());
  }
  LUMEN_RETURN_IF_ERROR(assign_rates(*rate_words, spec.models));
  const bool has_rows = !client_words->empty() && client_words->front().model.empty();
  spec.is_shared = rate_words->empty() && (client_words->empty() || has_rows);
  if (has_rows) {
    for (const NumberWord& word : *client_words) {
      spec.rows.push_back(static_cast<uint32_t>(word.number));
    }
  } else {
    LUMEN_RETURN_IF_ERROR(assign("--clients", *client_words, spec.models, &MixModel::clients));
  }
  if (!spec.is_shared && !has_rows) LUMEN_RETURN_IF_ERROR(complete(spec.models));
  if (spec.is_shared && !has_rows) spec.rows.assign(kDefaultClients.begin(), kDefaultClients.end());
  if (spec.rows.empty()) spec.rows.push_back(0);
  return spec;
}

}  // namespace lumen::client
