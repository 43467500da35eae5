// See the header.
#include <lumen/wire/accept.h>

#include "wire/ascii.h"

#include <algorithm>

namespace lumen::wire {
namespace {

constexpr int kWhole = 1000;

// Cuts the text up to `end` off, or all of it.
std::string_view take_until(std::string_view& text, char end) noexcept {
  const std::string_view taken = text.substr(0, text.find(end));
  text.remove_prefix(std::min(taken.size() + 1, text.size()));
  return taken;
}

// "1", "0.5", with up to three decimals; kNotListed: no such number.
int weight_of(std::string_view text) noexcept {
  if (text.empty() || text.size() > 5 || (text[0] != '0' && text[0] != '1')) return kNotListed;
  int weight = (text[0] - '0') * kWhole;
  if (text.size() > 1 && text[1] != '.') return kNotListed;
  int place = kWhole / 10;
  for (const char c : text.substr(std::min<size_t>(2, text.size()))) {
    if (c < '0' || c > '9') return kNotListed;
    weight += (c - '0') * place;
    place /= 10;
  }
  return weight <= kWhole ? weight : kNotListed;
}

// Of the parameters behind a name.
int quality(std::string_view parameters) noexcept {
  while (!parameters.empty()) {
    std::string_view value = take_until(parameters, ';');
    const std::string_view name = trim_blanks(take_until(value, '='));
    if (equals_ignoring_case(name, "q")) return weight_of(trim_blanks(value));
  }
  return kWhole;
}

}  // namespace

int quality_of(std::string_view list, std::string_view name) noexcept {
  int best = kNotListed;
  while (!list.empty()) {
    std::string_view element = take_until(list, ',');
    if (equals_ignoring_case(trim_blanks(take_until(element, ';')), name))
      best = std::max(best, quality(element));
  }
  return best;
}

size_t elements_of(std::string_view list) noexcept {
  size_t count = 0;
  while (!list.empty()) {
    if (!trim_blanks(take_until(list, ',')).empty()) ++count;
  }
  return count;
}

}  // namespace lumen::wire
