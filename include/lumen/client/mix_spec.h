// MixSpec: the meaning of `--mix`, `--clients` and `--rate` for several models: how many clients
// ask for which, how often. Threads: values. Memory: the heap; control plane. Errors: Status naming
// the word, the fault in it and the values wanted.
#pragma once

#include <lumen/base/result.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lumen::client {

inline constexpr std::array<uint32_t, 3> kDefaultClients = {1, 4, 16};
// How many connections a model has in an open loop of its own where nobody says.
inline constexpr uint32_t kOpenLoopClients = 16;

// Of a bench without --mix; no words: the defaults.
[[nodiscard]] Result<std::vector<uint32_t>> parse_clients(const std::vector<std::string>& words);
// 0: none.
[[nodiscard]] Result<double> parse_rate(const std::vector<std::string>& words);

struct MixModel {
  std::string name;
  double weight = 1;
  // Where it has clients or a rate of its own:
  uint32_t clients = 0;
  double rate = 0;  // 0: closed loop
};

struct MixSpec {
  std::vector<MixModel> models;
  // Closed loop by the same clients, which choose by weight; else each model has clients of its
  // own.
  bool is_shared = false;
  // A row for each: clients in all where they are shared, else of each model. 0: as the models say.
  std::vector<uint32_t> rows;
};

// Words: "mlp" or "mlp:0.9"; "32" or "mlp:32"; "1000" or "mlp:1000". `clients` and `rate` may be
// empty.
[[nodiscard]] Result<MixSpec> parse_mix(const std::vector<std::string>& mix,
                                        const std::vector<std::string>& clients,
                                        const std::vector<std::string>& rate);

}  // namespace lumen::client
