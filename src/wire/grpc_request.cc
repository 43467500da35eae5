// ModelInferRequest to an InferHead. Its lists are counted first, then taken from memory as one.
// Typed contents: grpc_contents.cc.
#include <lumen/base/limits.h>
#include <lumen/wire/grpc_infer.h>

#include "wire/grpc_contents.h"
#include "wire/grpc_fields.h"
#include "wire/json_escape.h"

#include <lumen/wire/protobuf.h>

#include <simdjson.h>

#include <algorithm>
#include <bit>
#include <charconv>

namespace lumen::wire {
namespace {

constexpr std::string_view kSharedMemory = "shared_memory_";

Status broken(const char* message) noexcept {
  return Status::error(Code::kInvalidArgument,
                       "%s is no valid protobuf message: its fields do not end where it ends",
                       message);
}

Status no_room() noexcept {
  return Status::error(Code::kTooLarge, "the request's memory has no room for its tensors");
}

// A parameter's value: InferParameter.
struct Value {
  uint32_t kind = 0;  // field::kBool and its like; 0: none
  uint64_t number = 0;
  std::string_view text;
};

struct Parameter {
  std::string_view name;
  Value value;
};

bool read_value(std::string_view message, Value& value) noexcept {
  ProtobufReader reader(message);
  for (ProtobufField one; reader.next(one);) {
    const bool is_text = one.number == field::kString;
    const bool is_double = one.number == field::kDouble;
    if (one.number == 0 || one.number > field::kUint64) continue;
    const ProtobufWire wanted = is_text     ? ProtobufWire::kBytes
                                : is_double ? ProtobufWire::kFixed64
                                            : ProtobufWire::kVarint;
    if (one.wire != wanted) return false;
    value = {.kind = one.number, .number = one.value, .text = one.bytes};
  }
  return !reader.is_broken();
}

bool read_parameter(std::string_view entry, Parameter& parameter) noexcept {
  ProtobufReader reader(entry);
  for (ProtobufField one; reader.next(one);) {
    if (one.number > field::kValue) continue;
    if (one.wire != ProtobufWire::kBytes) return false;
    if (one.number == field::kKey) {
      parameter.name = one.bytes;
    } else if (!read_value(one.bytes, parameter.value)) {
      return false;
    }
  }
  return !reader.is_broken();
}

class RequestReader {
 public:
  explicit RequestReader(Allocator& memory) noexcept : memory_(memory) {}
  [[nodiscard]] Status read(std::string_view message) noexcept;
  [[nodiscard]] const GrpcInferRequest& request() const noexcept { return request_; }

 private:
  struct Counts {
    size_t inputs = 0;
    size_t outputs = 0;
    size_t raw = 0;
    size_t parameters = 0;  // at most: some are the protocol's
  };
  [[nodiscard]] Status count(std::string_view message, Counts& counts) const noexcept;
  [[nodiscard]] Status read_field(const ProtobufField& one) noexcept;
  [[nodiscard]] Status read_sequence_id(const Parameter& parameter) noexcept;
  Status read_request_parameter(const Parameter& parameter) noexcept;
  [[nodiscard]] Status read_input(std::string_view message) noexcept;
  [[nodiscard]] Status read_output(std::string_view message) noexcept;
  [[nodiscard]] Status read_shared(SharedPlace& place, const Parameter& parameter) noexcept;
  [[nodiscard]] Status finish_input(InferInput& input, std::string_view contents,
                                    bool has_contents) noexcept;
  [[nodiscard]] Status give_raw() noexcept;
  [[nodiscard]] Status unsigned_of(const Parameter& parameter, uint64_t& value) const noexcept;
  [[nodiscard]] Status bool_of(const Parameter& parameter, bool& value) const noexcept;
  [[nodiscard]] Status keep(std::string_view of, const Parameter& parameter) noexcept;

  Allocator& memory_;
  GrpcInferRequest request_;
  std::span<InferInput> inputs_;
  std::span<InferOutput> outputs_;
  std::span<InferParameter> parameters_;
  std::span<std::string_view> raw_;
  size_t inputs_read_ = 0;
  size_t outputs_read_ = 0;
  size_t parameters_read_ = 0;
  size_t raw_read_ = 0;
  bool has_contents_ = false;
};

Status wanted(const Parameter& parameter, const char* what) noexcept {
  return Status::error(Code::kInvalidArgument, "parameter '%.*s': wanted %s", width(parameter.name),
                       parameter.name.data(), what);
}

Status RequestReader::unsigned_of(const Parameter& parameter, uint64_t& value) const noexcept {
  const Value& said = parameter.value;
  const bool is_negative = said.kind == field::kInt64 && static_cast<int64_t>(said.number) < 0;
  if ((said.kind != field::kInt64 && said.kind != field::kUint64) || is_negative) {
    return wanted(parameter, "int64_param or uint64_param of 0 or more");
  }
  value = said.number;
  return {};
}

Status RequestReader::bool_of(const Parameter& parameter, bool& value) const noexcept {
  if (parameter.value.kind != field::kBool) return wanted(parameter, "bool_param");
  value = parameter.value.number != 0;
  return {};
}

// The JSON of a value, for all that is kept of parameters that no rule of ours knows.
Status RequestReader::keep(std::string_view of, const Parameter& parameter) noexcept {
  const Value& said = parameter.value;
  constexpr size_t kNumberBytes = 32;
  const bool is_text = said.kind == field::kString;
  const size_t most = is_text ? 2 + said.text.size() * JsonWriter::kMaxEscapedBytes : kNumberBytes;
  const std::span<char> room = memory_.allocate_array<char>(most);
  if (room.size() != most) return no_room();
  char* end = room.data();
  char* const last = end + most;
  switch (said.kind) {
    case field::kBool:
      end += std::string_view(said.number != 0 ? "true" : "false").copy(end, most);
      break;
    case field::kInt64:
      end = std::to_chars(end, last, static_cast<int64_t>(said.number)).ptr;
      break;
    case field::kUint64: end = std::to_chars(end, last, said.number).ptr; break;
    case field::kDouble:
      end = std::to_chars(end, last, std::bit_cast<double>(said.number)).ptr;
      break;
    case field::kString: {
      *end++ = '"';
      for (std::string_view rest = said.text; !rest.empty();) {
        const EscapedCharacter one = escape_character(rest);
        end = std::copy_n(one.bytes, one.size, end);
        rest.remove_prefix(one.consumed);
      }
      *end++ = '"';
      break;
    }
    default: end += std::string_view("null").copy(end, most); break;
  }
  parameters_[parameters_read_++] = {
      of, parameter.name, {room.data(), static_cast<size_t>(end - room.data())}};
  return {};
}

Status RequestReader::read_sequence_id(const Parameter& parameter) noexcept {
  SequenceWishes& sequence = request_.head.sequence;
  sequence.text = {};
  if (parameter.value.kind != field::kString) return unsigned_of(parameter, sequence.number);
  sequence.number = 0;
  if (parameter.value.text.size() > limits::kMaxSequenceIdBytes) {
    return Status::error(Code::kInvalidArgument,
                         "parameter 'sequence_id' has %zu bytes; at most %zu are taken",
                         parameter.value.text.size(), limits::kMaxSequenceIdBytes);
  }
  sequence.text = parameter.value.text;
  return {};
}

Status RequestReader::read_request_parameter(const Parameter& parameter) noexcept {
  InferHead& head = request_.head;
  const std::string_view name = parameter.name;
  uint64_t number = 0;
  bool flag = false;
  if (name == "timeout" || name == "ttl_ms") {
    LUMEN_RETURN_IF_ERROR(unsigned_of(parameter, number));
    (name == "timeout" ? head.timeout_us : head.ttl_ms) = number;
    if (name == "ttl_ms" && number == 0) return wanted(parameter, "1 or more milliseconds");
    return {};
  }
  if (name == "priority") {
    LUMEN_RETURN_IF_ERROR(unsigned_of(parameter, number));
    // Larger ones all mean the lowest.
    head.priority = static_cast<uint32_t>(std::min<uint64_t>(number, UINT32_MAX));
    return {};
  }
  if (name == "sequence_id") return read_sequence_id(parameter);
  if (name == "sequence_start") return bool_of(parameter, head.sequence.starts);
  if (name == "sequence_end") return bool_of(parameter, head.sequence.ends);
  if (name == "no_cache") return bool_of(parameter, head.no_cache);
  if (name == "binary_data_output") return bool_of(parameter, flag);  // they always are
  return keep({}, parameter);
}

Status RequestReader::read_shared(SharedPlace& place, const Parameter& parameter) noexcept {
  const std::string_view which = parameter.name.substr(kSharedMemory.size());
  if (which == "region") {
    if (parameter.value.kind != field::kString || parameter.value.text.empty()) {
      return wanted(parameter, "string_param, the name of a region");
    }
    place.region = parameter.value.text;
    return {};
  }
  if (which == "offset") return unsigned_of(parameter, place.offset);
  if (which == "byte_size") return unsigned_of(parameter, place.byte_size);
  return keep({}, parameter);
}

Status check_name(const char* what, std::string_view name) noexcept {
  if (!name.empty() && name.size() <= limits::kMaxNameBytes) return {};
  return Status::error(Code::kInvalidArgument, "%s has a name of %zu bytes; wanted 1 to %zu", what,
                       name.size(), limits::kMaxNameBytes);
}

Status read_dimension(InferInput& input, uint64_t value) noexcept {
  if (static_cast<int64_t>(value) < 0) {
    return Status::error(Code::kInvalidArgument,
                         "input '%.*s': a dimension of 'shape' is %lld; wanted 0 or more, the "
                         "size that is sent",
                         width(input.name), input.name.data(), static_cast<long long>(value));
  }
  if (input.tensor.shape.append(static_cast<int64_t>(value))) return {};
  return Status::error(Code::kInvalidArgument, "input '%.*s': 'shape' has more than %zu dimensions",
                       width(input.name), input.name.data(), limits::kMaxRank);
}

Status read_shape(InferInput& input, const ProtobufField& one) noexcept {
  if (one.wire == ProtobufWire::kVarint) return read_dimension(input, one.value);
  if (one.wire != ProtobufWire::kBytes) return broken("a shape");
  ProtobufReader packed(one.bytes);
  while (!packed.is_at_end()) {
    uint64_t value = 0;
    if (!packed.take_varint(value)) return broken("a shape");
    LUMEN_RETURN_IF_ERROR(read_dimension(input, value));
  }
  return {};
}

Status read_type(InferInput& input, std::string_view name) noexcept {
  const std::optional<ElementType> type = parse_element_type(name);
  if (!type) {
    return Status::error(Code::kInvalidArgument,
                         "input '%.*s': datatype '%.*s' is unknown; wanted BOOL, UINT8, UINT16, "
                         "UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, BF16, FP32, FP64 or "
                         "BYTES",
                         width(input.name), input.name.data(),
                         static_cast<int>(std::min<size_t>(name.size(), 40)), name.data());
  }
  input.tensor.type = *type;
  return {};
}

Status RequestReader::read_input(std::string_view message) noexcept {
  InferInput& input = inputs_[inputs_read_++];
  const size_t first_parameter = parameters_read_;
  std::string_view contents;
  bool has_contents = false;
  bool has_type = false;
  ProtobufReader reader(message);
  for (ProtobufField one; reader.next(one);) {
    if (one.number == field::kTensorShape) {
      LUMEN_RETURN_IF_ERROR(read_shape(input, one));
      continue;
    }
    if (one.number > field::kTensorContents) continue;
    if (one.wire != ProtobufWire::kBytes) return broken("an input");
    if (one.number == field::kTensorName) {
      input.name = one.bytes;
    } else if (one.number == field::kTensorType) {
      LUMEN_RETURN_IF_ERROR(read_type(input, one.bytes));
      has_type = true;
    } else if (one.number == field::kTensorContents) {
      if (has_contents) {  // protobuf would have them merged; no client sends that
        return Status::error(Code::kInvalidArgument, "input '%.*s' has 'contents' twice",
                             width(input.name), input.name.data());
      }
      contents = one.bytes;
      has_contents = !contents.empty();
    } else if (Parameter parameter; !read_parameter(one.bytes, parameter)) {
      return broken("an input's parameter");
    } else if (parameter.name.starts_with(kSharedMemory)) {
      LUMEN_RETURN_IF_ERROR(read_shared(input.shared, parameter));
    } else {
      LUMEN_RETURN_IF_ERROR(keep({}, parameter));
    }
  }
  if (reader.is_broken()) return broken("an input");
  LUMEN_RETURN_IF_ERROR(check_name("an input", input.name));
  for (InferParameter& one :
       parameters_.subspan(first_parameter, parameters_read_ - first_parameter)) {
    one.of = input.name;
  }
  if (!has_type) {
    return Status::error(Code::kInvalidArgument, "input '%.*s': 'datatype' is missing",
                         width(input.name), input.name.data());
  }
  return finish_input(input, contents, has_contents);
}

Status RequestReader::finish_input(InferInput& input, std::string_view contents,
                                   bool has_contents) noexcept {
  has_contents_ = has_contents_ || has_contents;
  const std::optional<size_t> elements = input.tensor.shape.element_count();
  const size_t unit = std::max(element_size(input.tensor.type), sizeof(uint32_t));
  size_t bytes = 0;
  if (!elements || __builtin_mul_overflow(*elements, unit, &bytes)) {
    return Status::error(Code::kInvalidArgument, "input '%.*s' has more bytes than can be counted",
                         width(input.name), input.name.data());
  }
  if (input.shared.is_there()) {
    if (!has_contents) {
      input.tensor.byte_size = input.shared.byte_size;
      return check_raw_size(input, *elements);
    }
    return Status::error(Code::kInvalidArgument,
                         "input '%.*s' has both 'shared_memory_region' and 'contents'; send it in "
                         "one place",
                         width(input.name), input.name.data());
  }
  return has_contents ? read_contents(input, contents, *elements, memory_) : Status();
}

Status RequestReader::read_output(std::string_view message) noexcept {
  InferOutput& output = outputs_[outputs_read_++];
  output.binary = true;
  const size_t first_parameter = parameters_read_;
  ProtobufReader reader(message);
  for (ProtobufField one; reader.next(one);) {
    if (one.number > field::kOutputParameters) continue;
    if (one.wire != ProtobufWire::kBytes) return broken("an output");
    Parameter parameter;
    if (one.number == field::kOutputName) {
      output.name = one.bytes;
    } else if (!read_parameter(one.bytes, parameter)) {
      return broken("an output's parameter");
    } else if (parameter.name.starts_with(kSharedMemory)) {
      LUMEN_RETURN_IF_ERROR(read_shared(output.shared, parameter));
    } else if (parameter.name == "classification") {
      uint64_t classes = 0;
      LUMEN_RETURN_IF_ERROR(unsigned_of(parameter, classes));
      // No tensor has more elements.
      output.classes = static_cast<uint32_t>(std::min<uint64_t>(classes, UINT32_MAX));
    } else if (parameter.name != "binary_data") {
      LUMEN_RETURN_IF_ERROR(keep({}, parameter));
    }
  }
  if (reader.is_broken()) return broken("an output");
  LUMEN_RETURN_IF_ERROR(check_name("an output", output.name));
  for (InferParameter& one :
       parameters_.subspan(first_parameter, parameters_read_ - first_parameter)) {
    one.of = output.name;
  }
  if (output.shared.is_there()) {
    output.binary = false;
    if (output.classes > 0) {
      return Status::error(Code::kInvalidArgument,
                           "output '%.*s' has both 'shared_memory_region' and 'classification'; "
                           "classes come in the reply only",
                           width(output.name), output.name.data());
    }
  }
  return {};
}

// Parameters lie one level down in inputs and outputs.
Status RequestReader::count(std::string_view message, Counts& counts) const noexcept {
  ProtobufReader reader(message);
  for (ProtobufField one; reader.next(one);) {
    const bool is_known = one.number >= field::kModelName && one.number <= field::kRawInputs;
    if (is_known && one.wire != ProtobufWire::kBytes) return broken("ModelInferRequest");
    counts.raw += one.number == field::kRawInputs ? 1 : 0;
    counts.parameters += one.number == field::kParameters ? 1 : 0;
    const bool is_input = one.number == field::kInputs;
    if (!is_input && one.number != field::kOutputs) continue;
    (is_input ? counts.inputs : counts.outputs) += 1;
    ProtobufReader tensor(one.bytes);
    const uint32_t wanted = is_input ? field::kTensorParameters : field::kOutputParameters;
    for (ProtobufField part; tensor.next(part);) counts.parameters += part.number == wanted ? 1 : 0;
  }
  if (reader.is_broken()) return broken("ModelInferRequest");
  if (counts.inputs > limits::kMaxTensors || counts.outputs > limits::kMaxTensors ||
      counts.raw > limits::kMaxTensors) {
    return Status::error(Code::kInvalidArgument,
                         "the request has %zu inputs, %zu outputs and %zu raw_input_contents; at "
                         "most %zu of each",
                         counts.inputs, counts.outputs, counts.raw, limits::kMaxTensors);
  }
  return {};
}

Status RequestReader::read_field(const ProtobufField& one) noexcept {
  switch (one.number) {
    case field::kModelName: request_.model = one.bytes; return {};
    case field::kModelVersion: request_.version = one.bytes; return {};
    case field::kId:
      if (one.bytes.size() > limits::kMaxRequestIdBytes) {
        return Status::error(Code::kInvalidArgument, "'id' has %zu bytes; at most %zu are taken",
                             one.bytes.size(), limits::kMaxRequestIdBytes);
      }
      if (!simdjson::validate_utf8(one.bytes.data(), one.bytes.size())) {
        return Status::error(Code::kInvalidArgument, "'id' is not valid UTF-8");
      }
      if (!one.bytes.empty()) request_.head.id = one.bytes;
      return {};
    case field::kInputs: return read_input(one.bytes);
    case field::kOutputs: return read_output(one.bytes);
    case field::kRawInputs: raw_[raw_read_++] = one.bytes; return {};
    case field::kParameters: {
      Parameter parameter;
      if (!read_parameter(one.bytes, parameter)) return broken("a parameter");
      return read_request_parameter(parameter);
    }
    default: return {};
  }
}

// In order, for those that are in no region of shared memory.
Status RequestReader::give_raw() noexcept {
  const auto is_sent = [](const InferInput& input) { return !input.shared.is_there(); };
  const auto sent = static_cast<size_t>(std::ranges::count_if(inputs_, is_sent));
  if (raw_.empty()) {
    const auto lacks = [&](const InferInput& input) {
      return is_sent(input) && input.tensor.data == nullptr &&
             input.tensor.shape.element_count() != 0u;
    };
    const auto found = std::ranges::find_if(inputs_, lacks);
    if (found == inputs_.end()) return {};
    return Status::error(Code::kInvalidArgument,
                         "input '%.*s' has no data; send raw_input_contents or 'contents'",
                         width(found->name), found->name.data());
  }
  if (has_contents_) {
    return Status::error(Code::kInvalidArgument,
                         "the request has both raw_input_contents and 'contents'; send all "
                         "inputs in one of these");
  }
  if (raw_.size() != sent) {
    return Status::error(Code::kInvalidArgument,
                         "got %zu raw_input_contents, wanted %zu: one for each input that is not "
                         "in shared memory",
                         raw_.size(), sent);
  }
  size_t number = 0;
  for (InferInput& input : inputs_) {
    if (!is_sent(input)) continue;
    const std::string_view bytes = raw_[number++];
    // The reader of inputs changes none of these.
    input.tensor.data = reinterpret_cast<std::byte*>(const_cast<char*>(bytes.data()));
    input.tensor.byte_size = bytes.size();
    LUMEN_RETURN_IF_ERROR(check_raw_size(input, *input.tensor.shape.element_count()));
  }
  return {};
}

Status RequestReader::read(std::string_view message) noexcept {
  Counts counts;
  LUMEN_RETURN_IF_ERROR(count(message, counts));
  if (counts.inputs == 0) {
    return Status::error(Code::kInvalidArgument, "the request has no 'inputs'");
  }
  inputs_ = memory_.allocate_array<InferInput>(counts.inputs);
  outputs_ = memory_.allocate_array<InferOutput>(counts.outputs);
  parameters_ = memory_.allocate_array<InferParameter>(counts.parameters);
  raw_ = memory_.allocate_array<std::string_view>(counts.raw);
  if (inputs_.size() != counts.inputs || outputs_.size() != counts.outputs ||
      parameters_.size() != counts.parameters || raw_.size() != counts.raw) {
    return no_room();
  }
  ProtobufReader reader(message);
  for (ProtobufField one; reader.next(one);) LUMEN_RETURN_IF_ERROR(read_field(one));
  LUMEN_RETURN_IF_ERROR(give_raw());
  InferHead& head = request_.head;
  head.inputs = inputs_;
  head.outputs = outputs_;
  head.parameters = parameters_.first(parameters_read_);
  head.binary_data_output = true;
  return {};
}

}  // namespace

Result<GrpcInferRequest> parse_grpc_infer(std::string_view message, Allocator& memory) noexcept {
  RequestReader reader(memory);
  const Status status = reader.read(message);
  if (!status.ok()) return status;
  return reader.request();
}

size_t grpc_tensor_offset(std::string_view begin) noexcept {
  size_t offset = 0;
  uint64_t largest = 0;
  ProtobufReader reader(begin);
  for (bool is_whole = true; is_whole;) {
    ProtobufField one;
    is_whole = reader.next(one);
    const bool is_raw = one.number == field::kRawInputs && one.wire == ProtobufWire::kBytes;
    if (!is_raw || one.value <= largest) continue;
    largest = one.value;
    offset = begin.size() - reader.left_bytes() - one.bytes.size();
  }
  return offset;
}

Result<GrpcModelName> parse_grpc_model_name(std::string_view message) noexcept {
  GrpcModelName model;
  ProtobufReader reader(message);
  for (ProtobufField one; reader.next(one);) {
    if (one.number > 2) continue;
    if (one.wire != ProtobufWire::kBytes) return broken("the request");
    (one.number == 1 ? model.name : model.version) = one.bytes;
  }
  if (reader.is_broken()) return broken("the request");
  return model;
}

}  // namespace lumen::wire
