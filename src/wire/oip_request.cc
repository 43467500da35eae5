// An infer request's JSON to an InferHead, in any order of its keys.
// Threads: one, with its JsonParser. Memory: the request's Allocator.
// Errors: Status naming the tensor.
#include <lumen/base/check.h>
#include <lumen/wire/oip.h>

#include "wire/json_cursor.h"
#include "wire/json_keys.h"
#include "wire/json_tensor.h"

#include <simdjson.h>

#include <algorithm>
#include <cstdio>

namespace lumen::wire {

struct JsonParser::Implementation {
  JsonKeys keys;
};

JsonParser::JsonParser() : implementation_(std::make_unique<Implementation>()) {
  // The first call picks the instruction set, under a lock and with getenv: not on a request.
  LUMEN_CHECK(simdjson::validate_utf8("", 0));
}
JsonParser::~JsonParser() = default;

namespace {

// Up to kMaxTensors of T in the request's memory. It grows as they come, since most requests have
// one.
template <typename T>
class Growing {
 public:
  // nullptr: no memory. The caller has seen that size() is below kMaxTensors.
  [[nodiscard]] T* add(Allocator& memory) noexcept {
    if (size_ == items_.size()) {
      const std::span<T> more = memory.allocate_array<T>(size_ == 0 ? 4 : size_ * 4);
      if (more.empty()) return nullptr;
      std::copy(items_.begin(), items_.end(), more.begin());
      items_ = more;
    }
    return &items_[size_++];
  }
  [[nodiscard]] size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<T> items() const noexcept { return items_.first(size_); }

 private:
  std::span<T> items_;
  size_t size_ = 0;
};

// One element of "inputs", before it is known to fit together.
struct InputText {
  std::string_view name;
  TensorView tensor;
  std::optional<uint64_t> binary_data_size;
  const char* data_at = nullptr;  // where the value of "data" begins
  bool has_name = false;
  bool has_shape = false;
  bool has_type = false;
  bool has_data = false;
  bool data_is_read = false;
  SharedPlace shared;

  [[nodiscard]] bool is_described() const noexcept { return has_name && has_shape && has_type; }
};

class RequestReader {
 public:
  explicit RequestReader(JsonCursor& cursor) noexcept : cursor_(cursor) {}

  [[nodiscard]] bool read() noexcept;
  [[nodiscard]] const InferHead& head() const noexcept { return head_; }

 private:
  bool read_member(std::string_view key) noexcept;
  bool read_id() noexcept;
  bool read_parameter(std::string_view key) noexcept;
  bool read_sequence_parameter(std::string_view key) noexcept;
  bool read_non_finite() noexcept;
  bool read_cache_parameter(std::string_view key) noexcept;
  bool keep_parameter(std::string_view of, std::string_view key) noexcept;
  bool read_shared_place(SharedPlace& place, std::string_view key) noexcept;
  bool finish_shared(const InputText& input, size_t elements) noexcept;
  std::optional<std::string_view> read_name() noexcept;

  bool read_input() noexcept;
  bool read_input_member(InputText& input, std::string_view key) noexcept;
  bool read_shape(InputText& input) noexcept;
  bool read_type(InputText& input) noexcept;
  bool read_data(InputText& input) noexcept;
  bool read_input_parameter(InputText& input, std::string_view key) noexcept;
  void name_parameters(size_t first, std::string_view tensor) noexcept;
  bool finish_input(InputText& input) noexcept;
  bool finish_binary(const InputText& input, size_t elements) noexcept;

  bool read_output() noexcept;
  bool read_output_parameter(InferOutput& output, std::string_view key) noexcept;
  bool finish() noexcept;
  bool refuse_memory() noexcept {
    return cursor_.refuse_as(Code::kTooLarge, "the request's memory has no room for its tensors");
  }

  JsonCursor& cursor_;
  InferHead head_;
  Growing<InferInput> inputs_;
  Growing<InferOutput> outputs_;
  Growing<InferParameter> parameters_;
  bool has_inputs_ = false;
};

bool RequestReader::read_id() noexcept {
  head_.id = cursor_.read_string("a string as 'id'");
  if (!head_.id) return false;
  if (head_.id->size() <= limits::kMaxRequestIdBytes) return true;
  return cursor_.refuse("'id' has %zu bytes; at most %zu are taken", head_.id->size(),
                        limits::kMaxRequestIdBytes);
}

bool RequestReader::read_non_finite() noexcept {
  const auto text = cursor_.read_string("\"null\", \"bare\" or \"string\" as 'non_finite'");
  if (!text) return false;
  const auto found = std::ranges::find(kNonFiniteNames, *text);
  if (found == kNonFiniteNames.end()) {
    return cursor_.refuse("'non_finite' is '%.*s'; wanted \"null\", \"bare\" or \"string\"",
                          static_cast<int>(std::min<size_t>(text->size(), 40)), text->data());
  }
  head_.non_finite = static_cast<NonFinite>(found - kNonFiniteNames.begin());
  return true;
}

bool RequestReader::read_sequence_parameter(std::string_view key) noexcept {
  SequenceWishes& sequence = head_.sequence;
  if (key != "sequence_id") {
    const bool is_start = key == "sequence_start";
    const std::optional<bool> value = cursor_.read_bool(
        is_start ? "true or false as 'sequence_start'" : "true or false as 'sequence_end'");
    (is_start ? sequence.starts : sequence.ends) = value.value_or(false);
    return value.has_value();
  }
  if (cursor_.peek() != '"') {
    const auto number = cursor_.read_unsigned("an unsigned integer or a string as 'sequence_id'");
    sequence.number = number.value_or(0);
    sequence.text = {};
    return number.has_value();
  }
  const std::optional<std::string_view> text = cursor_.read_string("a string as 'sequence_id'");
  if (!text) return false;
  if (text->size() > limits::kMaxSequenceIdBytes) {
    return cursor_.refuse("'sequence_id' has %zu bytes; at most %zu are taken", text->size(),
                          limits::kMaxSequenceIdBytes);
  }
  sequence.number = 0;
  sequence.text = *text;
  return true;
}

bool RequestReader::read_cache_parameter(std::string_view key) noexcept {
  if (key == "no_cache") {
    const std::optional<bool> value = cursor_.read_bool("true or false as 'no_cache'");
    head_.no_cache = value.value_or(false);
    return value.has_value();
  }
  head_.ttl_ms = cursor_.read_unsigned("milliseconds, an unsigned integer, as 'ttl_ms'");
  if (!head_.ttl_ms) return false;
  return *head_.ttl_ms > 0 || cursor_.refuse(
                                  "'ttl_ms' is 0; wanted 1 or more milliseconds, or "
                                  "'no_cache': true for an answer that is not kept");
}

// Reads over it; a cache of answers has to know of all parameters that might change them.
bool RequestReader::keep_parameter(std::string_view of, std::string_view key) noexcept {
  const char* const begin = cursor_.at();
  if (!cursor_.skip_value()) return false;
  InferParameter* const added = parameters_.add(cursor_.memory());
  if (added == nullptr) return refuse_memory();
  *added = {of, key, {begin, static_cast<size_t>(cursor_.at() - begin)}};
  return true;
}

constexpr std::string_view kSharedMemory = "shared_memory_";

// `key` begins with kSharedMemory.
bool RequestReader::read_shared_place(SharedPlace& place, std::string_view key) noexcept {
  key.remove_prefix(kSharedMemory.size());
  if (key == "region") {
    const auto region = cursor_.read_string("a string as 'shared_memory_region'");
    place.region = region.value_or("");
    if (!region) return false;
    return !region->empty() || cursor_.refuse("'shared_memory_region' is empty; wanted a name");
  }
  if (key != "offset" && key != "byte_size") return keep_parameter({}, key);
  const auto number = cursor_.read_unsigned("bytes, an unsigned integer, as a place in a region");
  (key == "offset" ? place.offset : place.byte_size) = number.value_or(0);
  return number.has_value();
}

// A tensor's parameters may come before its name.
void RequestReader::name_parameters(size_t first, std::string_view tensor) noexcept {
  for (InferParameter& parameter : parameters_.items().subspan(first)) parameter.of = tensor;
}

// Names that the protocol reserves are checked; of the others only the grammar counts, so that a
// client's own and Triton's triton_* ones pass.
bool RequestReader::read_parameter(std::string_view key) noexcept {
  if (cursor_.take_null()) return true;
  if (key == "non_finite") return read_non_finite();
  if (key == "binary_data_output") {
    const std::optional<bool> value = cursor_.read_bool("true or false as 'binary_data_output'");
    head_.binary_data_output = value.value_or(false);
    return value.has_value();
  }
  if (key == "timeout") {
    head_.timeout_us = cursor_.read_unsigned("microseconds, an unsigned integer, as 'timeout'");
    return head_.timeout_us.has_value();
  }
  if (key == "priority") {
    const auto value = cursor_.read_unsigned("an unsigned integer as 'priority'");
    // Larger ones all mean the lowest.
    head_.priority = static_cast<uint32_t>(std::min<uint64_t>(value.value_or(0), UINT32_MAX));
    return value.has_value();
  }
  if (key.starts_with("sequence_")) {
    const bool is_known = key == "sequence_id" || key == "sequence_start" || key == "sequence_end";
    return is_known ? read_sequence_parameter(key) : keep_parameter({}, key);
  }
  if (key == "no_cache" || key == "ttl_ms") return read_cache_parameter(key);
  return keep_parameter({}, key);
}

std::optional<std::string_view> RequestReader::read_name() noexcept {
  if (cursor_.peek() != '"') {
    cursor_.refuse_value("'name'", "a string");
    return std::nullopt;
  }
  const std::optional<std::string_view> name = cursor_.read_string("a string as 'name'");
  if (!name) return std::nullopt;
  if (name->empty() || name->size() > limits::kMaxNameBytes) {
    cursor_.refuse("a 'name' of %zu bytes; wanted 1 to %zu", name->size(), limits::kMaxNameBytes);
    return std::nullopt;
  }
  cursor_.name_subject(*name);
  return name;
}

bool RequestReader::read_shape(InputText& input) noexcept {
  if (cursor_.peek() != '[') {
    return cursor_.refuse_value("'shape'", "an array of integers, as [1,256]");
  }
  input.has_shape = true;
  return cursor_.read_array("an array as 'shape'", [this, &input] {
    const size_t axis = input.tensor.shape.rank();
    const char* const value = cursor_.at();
    const std::optional<int64_t> size = cursor_.try_integer();
    if (!size || *size < 0) {
      cursor_.jump_to(value);
      char what[40];
      std::snprintf(what, sizeof(what), "dimension %zu of 'shape'", axis);
      return cursor_.refuse_value(what, "an integer of 0 or more, the size that is sent");
    }
    if (input.tensor.shape.append(*size)) return true;
    return cursor_.refuse("'shape' has more than %zu dimensions", limits::kMaxRank);
  });
}

bool RequestReader::read_type(InputText& input) noexcept {
  if (cursor_.peek() != '"') {
    return cursor_.refuse_value("'datatype'", "a string, as \"FP32\"");
  }
  const std::optional<std::string_view> name = cursor_.read_string("a string as 'datatype'");
  if (!name) return false;
  const std::optional<ElementType> type = parse_element_type(*name);
  if (!type) {
    return cursor_.refuse(
        "datatype '%.*s' is unknown; wanted BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, "
        "INT32, INT64, FP16, BF16, FP32, FP64 or BYTES",
        static_cast<int>(std::min<size_t>(name->size(), 40)), name->data());
  }
  input.tensor.type = *type;
  input.has_type = true;
  return true;
}

// Read at once when name, shape and datatype came first, as every client sends them; else its
// place is kept and it is read when the object is complete.
bool RequestReader::read_data(InputText& input) noexcept {
  if (cursor_.take_null()) return true;  // as if it were absent
  input.has_data = true;
  input.data_at = cursor_.at();
  if (!input.is_described() || !input.tensor.shape.element_count()) return cursor_.skip_data();
  input.data_is_read = true;
  return read_json_tensor(cursor_, input.tensor);
}

bool RequestReader::read_input_parameter(InputText& input, std::string_view key) noexcept {
  if (cursor_.take_null()) return true;
  if (key == "binary_data_size") {
    input.binary_data_size = cursor_.read_unsigned("an unsigned integer as 'binary_data_size'");
    return input.binary_data_size.has_value();
  }
  if (key.starts_with(kSharedMemory)) return read_shared_place(input.shared, key);
  return keep_parameter({}, key);
}

bool RequestReader::read_input_member(InputText& input, std::string_view key) noexcept {
  if (key == "name") {
    const std::optional<std::string_view> name = read_name();
    input.name = name.value_or("");
    return input.has_name = name.has_value();
  }
  if (key == "shape") return read_shape(input);
  if (key == "datatype") return read_type(input);
  if (key == "data") return read_data(input);
  if (key == "parameters") {
    if (cursor_.take_null()) return true;
    return cursor_.read_object("an object as 'parameters'",
                               [this, &input](std::string_view parameter) {
                                 return read_input_parameter(input, parameter);
                               });
  }
  return cursor_.skip_value();
}

bool RequestReader::finish_shared(const InputText& input, size_t elements) noexcept {
  const uint64_t size = input.shared.byte_size;
  const bool is_text = input.tensor.type == ElementType::kBytes;
  const size_t wanted = elements * (is_text ? sizeof(uint32_t) : element_size(input.tensor.type));
  if (is_text ? size >= wanted : size == wanted) return true;
  return cursor_.refuse("shared_memory_byte_size is %llu bytes, but %s needs %s%zu",
                        static_cast<unsigned long long>(size), describe(input.tensor).text,
                        is_text ? "at least " : "", wanted);
}

bool RequestReader::finish_binary(const InputText& input, size_t elements) noexcept {
  const size_t size = *input.binary_data_size;
  if (input.tensor.type == ElementType::kBytes) {
    if (size / sizeof(uint32_t) >= elements) return true;
    return cursor_.refuse(
        "binary_data_size is %zu bytes, but %s needs at least %zu, four for the length of each "
        "element",
        size, describe(input.tensor).text, elements * sizeof(uint32_t));
  }
  const size_t wanted = elements * element_size(input.tensor.type);
  if (size == wanted) return true;
  return cursor_.refuse(
      "binary_data_size is %zu bytes, but %s needs %zu; send exactly shape x element size", size,
      describe(input.tensor).text, wanted);
}

bool RequestReader::finish_input(InputText& input) noexcept {
  if (!input.has_name) return cursor_.refuse("'name' is missing");
  if (!input.has_type) return cursor_.refuse("'datatype' is missing");
  if (!input.has_shape) return cursor_.refuse("'shape' is missing");
  const std::optional<size_t> elements = input.tensor.shape.element_count();
  const size_t unit = std::max(element_size(input.tensor.type), sizeof(uint32_t));
  size_t bytes = 0;
  if (!elements || __builtin_mul_overflow(*elements, unit, &bytes)) {
    return cursor_.refuse("%s has more bytes than can be counted", describe(input.tensor).text);
  }
  if (input.shared.is_there()) {
    if (input.has_data || input.binary_data_size) {
      return cursor_.refuse(
          "has both 'shared_memory_region' and data in the request; send it in one place");
    }
    input.tensor.byte_size = input.shared.byte_size;
    return finish_shared(input, *elements);
  }
  if (input.has_data == input.binary_data_size.has_value()) {
    return cursor_.refuse(
        "%s; send either 'data' or 'parameters': {'binary_data_size': N} with the bytes after the "
        "JSON",
        input.has_data ? "has both 'data' and 'binary_data_size'" : "has no data");
  }
  if (input.binary_data_size) {
    if (!finish_binary(input, *elements)) return false;
    input.tensor.byte_size = *input.binary_data_size;
    if (!__builtin_add_overflow(head_.binary_bytes, input.tensor.byte_size, &head_.binary_bytes)) {
      return true;
    }
    return cursor_.refuse("the binary_data_size of all inputs overflow");
  }
  if (input.data_is_read) return true;
  const char* const after = cursor_.at();
  cursor_.jump_to(input.data_at);
  if (!read_json_tensor(cursor_, input.tensor)) return false;
  cursor_.jump_to(after);
  return true;
}

bool RequestReader::read_input() noexcept {
  if (inputs_.size() == limits::kMaxTensors) {
    return cursor_.refuse("the request has more than %zu inputs", limits::kMaxTensors);
  }
  cursor_.begin_subject("input", inputs_.size());
  InputText input;
  const size_t first_parameter = parameters_.size();
  if (!cursor_.read_object("an object in 'inputs'", [this, &input](std::string_view key) {
        return read_input_member(input, key);
      })) {
    return false;
  }
  if (!finish_input(input)) return false;
  name_parameters(first_parameter, input.name);
  cursor_.end_subject();
  InferInput* const added = inputs_.add(cursor_.memory());
  if (added == nullptr) return refuse_memory();
  *added = {input.name, input.tensor, input.binary_data_size.has_value(), input.shared};
  return true;
}

bool RequestReader::read_output_parameter(InferOutput& output, std::string_view key) noexcept {
  if (cursor_.take_null()) return true;
  if (key == "binary_data") {
    const std::optional<bool> value = cursor_.read_bool("true or false as 'binary_data'");
    output.binary = value.value_or(false);
    output.says_binary = true;
    return value.has_value();
  }
  if (key == "classification") {
    const std::optional<uint64_t> count =
        cursor_.read_unsigned("an unsigned integer as 'classification'");
    // No tensor has more elements.
    output.classes = static_cast<uint32_t>(std::min<uint64_t>(count.value_or(0), UINT32_MAX));
    return count.has_value();
  }
  if (key.starts_with(kSharedMemory)) return read_shared_place(output.shared, key);
  return keep_parameter({}, key);
}

bool RequestReader::read_output() noexcept {
  if (outputs_.size() == limits::kMaxTensors) {
    return cursor_.refuse("the request has more than %zu outputs", limits::kMaxTensors);
  }
  cursor_.begin_subject("output", outputs_.size());
  InferOutput output;
  const size_t first_parameter = parameters_.size();
  const auto parameter = [this, &output](std::string_view key) {
    return read_output_parameter(output, key);
  };
  if (!cursor_.read_object("an object in 'outputs'", [&](std::string_view key) {
        if (key == "parameters") {
          return cursor_.take_null() || cursor_.read_object("an object as 'parameters'", parameter);
        }
        if (key != "name") return cursor_.skip_value();
        const std::optional<std::string_view> name = read_name();
        output.name = name.value_or("");
        return name.has_value();
      })) {
    return false;
  }
  if (output.name.empty()) return cursor_.refuse("'name' is missing");
  name_parameters(first_parameter, output.name);
  if (output.shared.is_there() && output.classes > 0) {
    return cursor_.refuse(
        "has both 'shared_memory_region' and 'classification'; classes come in the reply only");
  }
  cursor_.end_subject();
  InferOutput* const added = outputs_.add(cursor_.memory());
  if (added == nullptr) return refuse_memory();
  *added = output;
  return true;
}

// Clients made from a schema write null for members that are optional.
bool RequestReader::read_member(std::string_view key) noexcept {
  const bool is_optional = key == "outputs" || key == "id" || key == "parameters";
  if (is_optional && cursor_.take_null()) return true;
  if (key == "inputs") {
    has_inputs_ = true;
    return cursor_.read_array("an array as 'inputs'", [this] { return read_input(); });
  }
  if (key == "outputs") {
    return cursor_.read_array("an array as 'outputs'", [this] { return read_output(); });
  }
  if (key == "id") return read_id();
  if (key == "parameters") {
    return cursor_.read_object("an object as 'parameters'", [this](std::string_view parameter) {
      return read_parameter(parameter);
    });
  }
  return cursor_.skip_value();
}

bool RequestReader::finish() noexcept {
  if (!cursor_.at_end()) return cursor_.refuse_here("nothing after the request's object");
  if (!has_inputs_) return cursor_.refuse("the request has no 'inputs'");
  head_.inputs = inputs_.items();
  head_.outputs = outputs_.items();
  head_.parameters = parameters_.items();
  for (InferOutput& output : head_.outputs) {
    if (!output.says_binary) output.binary = head_.binary_data_output;
    output.binary = output.binary && !output.shared.is_there();
  }
  return true;
}

bool RequestReader::read() noexcept {
  return cursor_.read_object("the request's object", [this](std::string_view key) {
    return read_member(key);
  }) && finish();
}

}  // namespace

Result<InferHead> parse_infer_head(JsonParser& parser, std::string_view json,
                                   Allocator& memory) noexcept {
  if (json.size() > UINT32_MAX) {
    return Status::error(Code::kTooLarge, "the JSON has %zu bytes; at most 4 GiB are read",
                         json.size());
  }
  // Editors and .NET write one; of UTF-8 it says nothing.
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (json.starts_with(kByteOrderMark)) json.remove_prefix(kByteOrderMark.size());
  // Each second byte of Latin letters and signs is 0 there.
  const bool is_wide = json.size() >= 4 && ((json[0] == '\0' && json[2] == '\0') ||
                                            (json[1] == '\0' && json[3] == '\0'));
  if (is_wide || json.starts_with("\xff\xfe") || json.starts_with("\xfe\xff")) {
    return Status::error(Code::kInvalidArgument, "the JSON is UTF-16 or UTF-32; wanted UTF-8");
  }
  if (!simdjson::validate_utf8(json.data(), json.size())) {
    return Status::error(Code::kInvalidArgument, "the JSON is not valid UTF-8");
  }
  JsonKeys& keys = parser.implementation().keys;
  keys.drop_to(0);  // a refused request leaves its open objects behind
  JsonCursor cursor(json, keys, memory);
  RequestReader reader(cursor);
  if (!reader.read()) return cursor.status();
  return reader.head();
}

}  // namespace lumen::wire
