// The backend that was chosen for a model, and on what grounds.
// Threads: values, made on the control plane. Memory: the heap.
// Errors: default_choices_file() is empty where the environment names no folder.
#pragma once

#include <lumen/models/size_cost.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::models {

class LoadTrials;

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
  // Operators of the model that this backend is not known to compute as ONNX defines them. It
  // serves all the same: the configuration names it, or the server has no other.
  std::vector<std::string> operators_not_known{};
  std::vector<TriedBackend> tried{};
};

// The word for a choice by measuring.
inline constexpr std::string_view kAutoBackend = "auto";
// Serves model.py, and nothing else does.
inline constexpr std::string_view kPythonBackend = "python";

// How models are found, and which backend gets them.
struct LoadOptions {
  // Of models whose config.json says nothing.
  std::string backend{kAutoBackend};
  // The time that calls for measuring may take for one model; loading is not counted.
  uint64_t budget_ns = 1'000'000'000;
  // Where choices are kept from one start to the next; empty: nowhere.
  std::filesystem::path cache;
  // The folder of models as compiled; empty: none are kept.
  std::filesystem::path compiled = {};
  // Symbolic links that lead out of the repository are followed, too.
  bool follow_links = false;
  // Models that are loaded at once; 0: as many as there are usable CPUs, at most 8.
  uint32_t threads = 0;
  // Set by any thread: loading is given up before the next model, backend or trial run. nullptr:
  // never.
  const std::atomic<bool>* stop = nullptr;
  // A model that is loaded for the first time is tried there; nullptr: in this process at once. It
  // outlives the repository.
  LoadTrials* trials = nullptr;

  [[nodiscard]] bool is_stopped() const noexcept {
    // relaxed: nothing else is told by it
    return stop != nullptr && stop->load(std::memory_order_relaxed);
  }
};

// $XDG_CACHE_HOME/lumen/backends.json, or below $HOME/.cache.
[[nodiscard]] std::filesystem::path default_choices_file();

}  // namespace lumen::models
