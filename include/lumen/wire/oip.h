// The Open Inference Protocol's infer call: JSON heads with binary tensors behind them, both ways.
// Pure: no socket, no thread, no clock. Format: docs/formats/oip.md.
// Threads: a JsonParser belongs to one thread; the functions to any.
// Memory: a JsonParser allocates at construction only, for any text that it reads later; everything
// else comes from the Allocator given.
// Errors: Status naming the tensor, the value got, the value wanted and the fix.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/result.h>
#include <lumen/tensor/tensor_view.h>
#include <lumen/wire/json_writer.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace lumen::wire {

// Where a tensor lies in a region of the client's shared memory, that it has registered before.
struct SharedPlace {
  std::string_view region;  // its name; empty: the tensor is in the request, or the reply
  uint64_t offset = 0;      // in the region
  uint64_t byte_size = 0;
  [[nodiscard]] bool is_there() const noexcept { return !region.empty(); }
};

struct InferInput {
  std::string_view name;
  // Type, shape, byte_size (checked product). data: set when it came as JSON "data"; nullptr when
  // binary_data_size says that the bytes follow.
  TensorView tensor;
  bool is_binary = false;
  SharedPlace shared{};  // then data is nullptr, and is_binary false
};

struct InferOutput {
  std::string_view name;
  bool binary = false;       // its own "binary_data", else the request's "binary_data_output"
  bool says_binary = false;  // "binary_data" was there
  SharedPlace shared{};      // then it is not binary
  uint32_t classes = 0;      // "classification": so many of the best; 0: the tensor itself
};

// A parameter that no rule of ours knows: a client's own, or Triton's.
struct InferParameter {
  std::string_view of;  // the tensor that it belongs to; empty: the request's
  std::string_view name;
  std::string_view value;  // JSON, as it was sent
};

// The values of the parameter "non_finite", in the order of NonFinite.
inline constexpr std::array<std::string_view, 3> kNonFiniteNames = {"null", "bare", "string"};

// The sequence that a request belongs to, and its place there: the parameters "sequence_id",
// "sequence_start" and "sequence_end". The numbers 0 and the empty text name none, as Triton has
// it; the number 7 and the text "7" are two sequences.
struct SequenceWishes {
  uint64_t number = 0;
  std::string_view text{};  // at most limits::kMaxSequenceIdBytes; then `number` is 0
  bool starts = false;
  bool ends = false;
  [[nodiscard]] bool has_id() const noexcept { return number != 0 || !text.empty(); }
  [[nodiscard]] bool is_said() const noexcept { return has_id() || starts || ends; }
};

struct InferHead {
  std::optional<std::string_view> id;
  std::optional<uint64_t> timeout_us;  // parameter "timeout"
  std::optional<uint64_t> ttl_ms;      // parameter "ttl_ms", 1 or more
  uint32_t priority = 0;               // parameter "priority"; 0: none, or the model's own
  bool no_cache = false;               // parameter "no_cache"
  SequenceWishes sequence{};
  NonFinite non_finite = NonFinite::kNull;  // parameter "non_finite"
  std::span<InferParameter> parameters;
  std::span<InferInput> inputs;
  std::span<InferOutput> outputs;  // empty: all outputs
  bool binary_data_output = false;
  size_t binary_bytes = 0;  // sum of all binary_data_size, checked
};

class JsonParser {
 public:
  JsonParser();
  ~JsonParser();
  JsonParser(const JsonParser&) = delete;
  JsonParser& operator=(const JsonParser&) = delete;

  // Bytes that must be readable (any content) after the JSON text.
  static constexpr size_t kPadding = 64;

  struct Implementation;
  [[nodiscard]] Implementation& implementation() noexcept { return *implementation_; }

 private:
  std::unique_ptr<Implementation> implementation_;
};

// Parses an infer request's JSON. `json` is followed by JsonParser::kPadding readable bytes. Views
// and JSON tensors in the result live in `memory`. Fixed-size types are little-endian packed; BYTES
// elements are u32 length + bytes. Does not know the model: names are not checked here.
[[nodiscard]] Result<InferHead> parse_infer_head(JsonParser& parser, std::string_view json,
                                                 Allocator& memory) noexcept;

struct ReplyOutput {
  std::string_view name;
  TensorView tensor;
  bool binary = false;
  // Its bytes lie in the client's shared memory. The reply has no word of that: Triton's C++ client
  // takes any "parameters" of an output for those of binary data.
  bool is_elsewhere = false;
};

struct InferReply {
  std::string_view model_name;
  std::string_view model_version;
  std::optional<std::string_view> id;
  std::span<const ReplyOutput> outputs;
  NonFinite non_finite = NonFinite::kNull;
};

struct EncodedReply {
  std::string_view json;    // in `memory`
  size_t binary_bytes = 0;  // of the binary outputs, which follow in order
  bool has_binary = false;  // then Inference-Header-Content-Length is sent
};

// FP16 and BF16 outputs exist only as binary: as JSON they are an error (kInvalidArgument).
[[nodiscard]] Result<EncodedReply> encode_infer_reply(const InferReply& reply,
                                                      Allocator& memory) noexcept;

// {"error":"..."} into `out`, escaped and valid UTF-8 for any message, cut to fit.
inline constexpr size_t kMaxErrorBodyBytes = 2048;
[[nodiscard]] size_t write_error_body(std::span<char> out, std::string_view message) noexcept;

}  // namespace lumen::wire
