// What came out when a backend was chosen for a model, and on what grounds.
// Threads: values, made on the control plane. Memory: the heap.
// Errors: default_choices_file() is empty where the environment names no folder.
#pragma once

#include <lumen/engine/size_cost.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::engine {

struct TriedBackend {
  std::string name;
  std::string problem;          // why it can't serve the model; empty: it can
  std::vector<SizeCost> costs;  // the fastest call of each size; empty: not measured
};

struct BackendChoice {
  std::string backend{};       // empty: none can serve the model
  std::string why{};           // a sentence for people: banner, log, documents
  bool is_remembered = false;  // measured at an earlier start
  // Another backend was left out because its answers are not this one's.
  bool answers_differ = false;
  std::vector<TriedBackend> tried{};
};

// The word for a choice by measuring.
inline constexpr std::string_view kAutoBackend = "auto";

struct ChoiceOptions {
  // Of models whose config.json says nothing.
  std::string backend{kAutoBackend};
  // The time that calls for measuring may take for one model; loading is not counted.
  uint64_t budget_ns = 1'000'000'000;
  // Where choices are kept from one start to the next; empty: nowhere.
  std::filesystem::path cache;
};

// $XDG_CACHE_HOME/lumen/backends.json, or below $HOME/.cache.
[[nodiscard]] std::filesystem::path default_choices_file();

}  // namespace lumen::engine
