// Request traces for eviction policies: made from a seed, kept in a file, so that all caches read
// the same.
// Threads: one. Memory: the heap. Errors: std::runtime_error names the file or the trace.
//
// A file is the keys in the order in which they are asked for, 8 bytes each, little-endian.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace lumen::bench {

using Trace = std::vector<uint64_t>;

// Keys that look like no sequence, below 2^62, so that every language reads them as positive.
inline uint64_t key_of(uint64_t number) {
  uint64_t x = number + 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return (x ^ (x >> 31)) >> 2;
}

// Rank r, from 0, comes with a probability of (r + 1)^-skew.
class Zipf {
 public:
  Zipf(size_t ranks, double skew) : sums_(ranks) {
    double sum = 0;
    for (size_t r = 0; r < ranks; ++r) {
      sums_[r] = sum += std::pow(static_cast<double>(r + 1), -skew);
    }
  }
  size_t operator()(std::mt19937_64& random) const {
    const double at = std::uniform_real_distribution<double>(0, sums_.back())(random);
    const auto found = std::upper_bound(sums_.begin(), sums_.end(), at);
    return std::min(static_cast<size_t>(found - sums_.begin()), sums_.size() - 1);
  }

 private:
  std::vector<double> sums_;
};

inline Trace zipf_trace(size_t keys, size_t requests, double skew, std::mt19937_64& random) {
  const Zipf zipf(keys, skew);
  Trace trace(requests);
  for (uint64_t& key : trace) key = key_of(zipf(random));
  return trace;
}

// Zipf 1.0; after each `keys / 10` of such requests a scan of `keys / 20` keys that never come
// again.
inline Trace scans_trace(size_t keys, size_t requests, std::mt19937_64& random) {
  const Zipf zipf(keys, 1.0);
  Trace trace;
  trace.reserve(requests);
  uint64_t fresh = keys;
  while (trace.size() < requests) {
    for (size_t i = 0; i < keys / 10; ++i) trace.push_back(key_of(zipf(random)));
    for (size_t i = 0; i < keys / 20; ++i) trace.push_back(key_of(fresh++));
  }
  trace.resize(requests);
  return trace;
}

// The same keys in the same order, again and again: nothing fits, and LRU hits nothing.
inline Trace loop_trace(size_t keys, size_t requests) {
  Trace trace(requests);
  for (size_t i = 0; i < requests; ++i) trace[i] = key_of(i % keys);
  return trace;
}

// Zipf 1.0 whose popular keys are others after each tenth of the trace.
inline Trace shifting_trace(size_t keys, size_t requests, std::mt19937_64& random) {
  const Zipf zipf(keys, 1.0);
  std::vector<uint64_t> names(keys);
  std::iota(names.begin(), names.end(), 0);
  Trace trace(requests);
  for (size_t i = 0; i < requests; ++i) {
    if (i % (requests / 10) == 0) std::shuffle(names.begin(), names.end(), random);
    trace[i] = key_of(names[zipf(random)]);
  }
  return trace;
}

// A third of the requests are for new keys, the others for one asked for lately, some 0.03 * keys
// requests ago: W-TinyLFU with a small window is bad at that.
inline Trace recent_trace(size_t keys, size_t requests, std::mt19937_64& random) {
  std::exponential_distribution<double> distance(1 / (0.03 * static_cast<double>(keys)));
  Trace trace;
  trace.reserve(requests);
  uint64_t fresh = 0;
  while (trace.size() < requests) {
    const size_t back = static_cast<size_t>(distance(random)) + 1;
    const bool is_new = random() % 3 == 0 || back > trace.size();
    trace.push_back(is_new ? key_of(fresh++) : trace[trace.size() - back]);
  }
  return trace;
}

inline Trace make_trace(const std::string& name, size_t keys, size_t requests, uint64_t seed) {
  std::mt19937_64 random(seed);
  if (name == "zipf 0.8") return zipf_trace(keys, requests, 0.8, random);
  if (name == "zipf 1.0") return zipf_trace(keys, requests, 1.0, random);
  if (name == "zipf 1.2") return zipf_trace(keys, requests, 1.2, random);
  if (name == "zipf and scans") return scans_trace(keys, requests, random);
  if (name == "loop") return loop_trace(keys, requests);
  if (name == "shifting zipf") return shifting_trace(keys, requests, random);
  if (name == "recent keys") return recent_trace(keys, requests, random);
  throw std::runtime_error("no trace is called " + name);
}

inline void write_trace(const std::string& file, const Trace& trace) {
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(trace.data()),
            static_cast<std::streamsize>(trace.size() * sizeof(uint64_t)));
  if (!out.flush()) throw std::runtime_error("cannot write " + file);
}

inline Trace read_trace(const std::string& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) throw std::runtime_error("cannot read " + file);
  Trace trace(static_cast<size_t>(in.tellg()) / sizeof(uint64_t));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(trace.data()),
          static_cast<std::streamsize>(trace.size() * sizeof(uint64_t)));
  if (!in) throw std::runtime_error("cannot read " + file);
  return trace;
}

}  // namespace lumen::bench
