// KnownCosts: times of a model's calls as measured when its instances were made, so that they are
// measured once for the model, not for each instance, change and start.
// Threads: a value; the control plane's. Memory: the heap. Errors: none.
#pragma once

#include <lumen/models/size_cost.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::models {

struct KnownCosts {
  struct Request {
    uint64_t ns = 0;
    uint64_t input_bytes = 0;
    bool operator==(const Request&) const = default;
  };
  // Of one row.
  std::optional<Request> request;
  // By the rows of a trial call: whether so many in one call take less time than one by one.
  std::map<uint32_t, bool> gains_by_packing;
  // Of calls of the sizes that the key names. A few entries at most: the key follows from
  // batch_size.
  std::map<std::vector<uint32_t>, std::vector<SizeCost>> sizes;
  bool operator==(const KnownCosts&) const = default;
};

// For a file.
[[nodiscard]] std::string to_text(const KnownCosts& costs);
// nullopt: of another form than to_text() gives it.
[[nodiscard]] std::optional<KnownCosts> parse_known_costs(std::string_view text);

}  // namespace lumen::models
