// Fingerprint: a call's question, as bytes that are equal if the answers are, and the hashes of
// them.
//
//   XXH3 of each input │ structure: generation, model, version, inputs, outputs, parameters │ HighwayHash of each
//   └──────────── key = XXH3 of these ──────────────┘
//                      └───────────────────── check = HighwayHash of these ──────────────┘
//
// An input stands in the structure with its name, datatype, shape and size, in the model's order,
// for any order of the request. Left out are the parameters that change no answer (id, timeout,
// priority, ttl_ms, no_cache, non_finite) and the form of the outputs: each reply has the form that
// its own request asks for.
//
// Threads: the call's. Memory: the call's scratch. Errors: nullopt where that has no room.
#pragma once

#include <lumen/answers/keyed_hash.h>
#include <lumen/service/call.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace lumen::answers {

// By two families: calls that share a run are equal by both.
struct HashPair {
  Hash128 key;
  Hash128 check;
  friend bool operator==(const HashPair&, const HashPair&) noexcept = default;
};

class Fingerprint {
 public:
  // `generation`: of the model, so that another load of the same files is another.
  [[nodiscard]] static std::optional<Fingerprint> of(const service::Call& call, uint64_t generation,
                                                     const KeyedHash& hash) noexcept;

  [[nodiscard]] const Hash128& key() const noexcept { return key_; }
  [[nodiscard]] std::span<const std::byte> structure() const noexcept {
    return bytes_.subspan(inputs_ * sizeof(Hash128), bytes_.size() - 2 * inputs_ * sizeof(Hash128));
  }
  // HighwayHash of an input; each is made once.
  [[nodiscard]] const Hash128& second(const service::Call& call, size_t input,
                                      const KeyedHash& hash) noexcept;
  [[nodiscard]] HashPair pair(const service::Call& call, const KeyedHash& hash) noexcept;

 private:
  Fingerprint(std::span<std::byte> bytes, std::span<bool> has_second) noexcept
      : bytes_(bytes), has_second_(has_second), inputs_(has_second.size()) {}
  [[nodiscard]] Hash128* first_hashes() const noexcept;
  [[nodiscard]] Hash128* second_hashes() const noexcept;

  std::span<std::byte> bytes_;
  std::span<bool> has_second_;  // of each input
  size_t inputs_;
  Hash128 key_;
};

}  // namespace lumen::answers
