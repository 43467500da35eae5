// See the header for threads, memory and errors.
#include <lumen/wire/bus_infer.h>

#include <lumen/base/check.h>
#include <lumen/base/limits.h>

#include <array>
#include <cstring>

namespace lumen::wire {
namespace {

// Fields and strings of a frame in order. After the first that is not there all that follow are
// empty.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) noexcept : left_(bytes) {}

  template <typename T>
  [[nodiscard]] T take() noexcept {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const std::span<const std::byte> bytes = take_bytes(sizeof(T));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  [[nodiscard]] std::string_view take_text(size_t bytes) noexcept {
    const std::span<const std::byte> text = take_bytes(bytes);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }
  [[nodiscard]] std::string_view take_string() noexcept { return take_text(take<uint16_t>()); }
  [[nodiscard]] bool is_short() const noexcept { return is_short_; }
  [[nodiscard]] size_t left() const noexcept { return left_.size(); }

 private:
  [[nodiscard]] std::span<const std::byte> take_bytes(size_t bytes) noexcept {
    if (bytes > left_.size()) {
      is_short_ = true;
      left_ = {};
      return {};
    }
    const std::span<const std::byte> taken = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return taken;
  }

  std::span<const std::byte> left_;
  bool is_short_ = false;
};

class Writer {
 public:
  explicit Writer(std::span<std::byte> bytes) noexcept : left_(bytes) {}

  template <typename T>
  void put(const T& value) noexcept {
    static_assert(std::is_trivially_copyable_v<T>);
    put_bytes(&value, sizeof(T));
  }
  void put_text(std::string_view text) noexcept { put_bytes(text.data(), text.size()); }
  void put_string(std::string_view text) noexcept {
    put(static_cast<uint16_t>(text.size()));
    put_text(text);
  }
  [[nodiscard]] bool is_full() const noexcept { return left_.empty(); }

 private:
  void put_bytes(const void* bytes, size_t size) noexcept {
    LUMEN_DCHECK(size <= left_.size());
    if (size > 0) std::memcpy(left_.data(), bytes, size);
    left_ = left_.subspan(size);
  }

  std::span<std::byte> left_;
};

Status cut_off(const char* what, size_t bytes) noexcept {
  return Status::error(Code::kInvalidArgument,
                       "bus %s of %zu bytes ends before all that its head tells of", what, bytes);
}

Status check_version(const char* what, uint16_t version) noexcept {
  if (version == kBusInferVersion) return {};
  return Status::error(Code::kInvalidArgument,
                       "bus %s has version %u of the format, wanted %u; update the older side",
                       what, version, kBusInferVersion);
}

Status out_of_memory() noexcept {
  return Status::error(Code::kTooLarge, "the lists of a bus frame do not fit a request's memory");
}

// The heads of `count` tensors and their dimensions; the names follow later.
Result<std::span<BusTensor>> take_tensors(Reader& reader, size_t count, const char* what,
                                          Allocator& memory) noexcept {
  if (count > limits::kMaxTensors) {
    return Status::error(Code::kInvalidArgument, "bus %s: %zu tensors are above the limit of %zu",
                         what, count, limits::kMaxTensors);
  }
  const std::span<BusTensor> tensors = memory.allocate_array<BusTensor>(count);
  if (tensors.size() != count) return out_of_memory();
  std::array<uint8_t, limits::kMaxTensors> ranks;
  for (size_t i = 0; i < count; ++i) {
    const auto head = reader.take<BusTensorHead>();
    if (head.datatype > static_cast<uint8_t>(ElementType::kBytes) || head.rank > limits::kMaxRank ||
        head.reserved0 != 0 || head.reserved1 != 0) {
      return Status::error(
          Code::kInvalidArgument,
          "bus %s: tensor %zu has datatype %u, rank %u, reserved %u and %u; wanted "
          "a datatype up to 13, a rank up to %zu, and zeros",
          what, i, head.datatype, head.rank, head.reserved0, head.reserved1, limits::kMaxRank);
    }
    tensors[i].type = static_cast<ElementType>(head.datatype);
    tensors[i].offset = head.offset;
    tensors[i].bytes = head.bytes;
    ranks[i] = head.rank;
  }
  for (size_t i = 0; i < count; ++i) {
    for (uint8_t axis = 0; axis < ranks[i]; ++axis) {
      const auto dimension = reader.take<int64_t>();
      if (dimension < 0) {
        return Status::error(Code::kInvalidArgument,
                             "bus %s: tensor %zu has dimension %lld; a shape has none below 0",
                             what, i, static_cast<long long>(dimension));
      }
      (void)tensors[i].shape.append(dimension);
    }
  }
  return tensors;
}

void put_tensors(Writer& writer, std::span<const BusTensor> tensors) noexcept {
  for (const BusTensor& tensor : tensors) {
    writer.put(BusTensorHead{.offset = tensor.offset,
                             .bytes = tensor.bytes,
                             .datatype = static_cast<uint8_t>(tensor.type),
                             .rank = static_cast<uint8_t>(tensor.shape.rank()),
                             .reserved0 = 0,
                             .reserved1 = 0});
  }
  for (const BusTensor& tensor : tensors) {
    for (const int64_t dimension : tensor.shape.dimensions()) writer.put(dimension);
  }
}

// Adds the bytes of strings, as they stand in frames; false: one is too long.
bool add_string(size_t& bytes, std::string_view text) noexcept {
  bytes += sizeof(uint16_t) + text.size();
  return text.size() <= UINT16_MAX;
}

bool add_tensors(size_t& bytes, std::span<const BusTensor> tensors) noexcept {
  if (tensors.size() > limits::kMaxTensors) return false;
  for (const BusTensor& tensor : tensors) {
    bytes += sizeof(BusTensorHead) + tensor.shape.rank() * sizeof(int64_t);
    if (!add_string(bytes, tensor.name)) return false;
  }
  return true;
}

uint16_t flags_of(const BusRequest& request) noexcept {
  unsigned flags = 0;
  if (request.timeout_us) flags |= BusRequestHead::kHasTimeout;
  if (request.no_cache) flags |= BusRequestHead::kNoCache;
  if (request.ttl_ms) flags |= BusRequestHead::kHasTtl;
  if (request.sequence.number != 0) flags |= BusRequestHead::kHasSequence;
  if (request.sequence.starts) flags |= BusRequestHead::kStartsSequence;
  if (request.sequence.ends) flags |= BusRequestHead::kEndsSequence;
  constexpr uint32_t kMostPriority =
      BusRequestHead::kPriorityMask >> BusRequestHead::kPriorityShift;
  flags |= std::min(request.priority, kMostPriority) << BusRequestHead::kPriorityShift;
  return static_cast<uint16_t>(flags);
}

}  // namespace

Result<BusRequest> parse_bus_request(std::span<const std::byte> frame, Allocator& memory) noexcept {
  Reader reader(frame);
  const auto head = reader.take<BusRequestHead>();
  if (reader.is_short()) return cut_off("request", frame.size());
  LUMEN_RETURN_IF_ERROR(check_version("request", head.version));
  constexpr uint16_t kKnown = BusRequestHead::kHasTimeout | BusRequestHead::kNoCache |
                              BusRequestHead::kHasTtl | BusRequestHead::kHasSequence |
                              BusRequestHead::kStartsSequence | BusRequestHead::kEndsSequence |
                              BusRequestHead::kPriorityMask;
  if ((head.flags & ~kKnown) != 0) {
    return Status::error(Code::kInvalidArgument, "bus request: flags %#x are not known",
                         head.flags);
  }
  BusRequest request;
  request.no_cache = (head.flags & BusRequestHead::kNoCache) != 0;
  request.priority = head.flags >> BusRequestHead::kPriorityShift;
  if ((head.flags & BusRequestHead::kHasTtl) != 0) {
    request.ttl_ms = reader.take<uint64_t>();
    if (*request.ttl_ms == 0 && !reader.is_short()) {
      return Status::error(Code::kInvalidArgument,
                           "bus request: ttl_ms is 0; wanted 1 or more milliseconds");
    }
  }
  request.sequence.starts = (head.flags & BusRequestHead::kStartsSequence) != 0;
  request.sequence.ends = (head.flags & BusRequestHead::kEndsSequence) != 0;
  if ((head.flags & BusRequestHead::kHasSequence) != 0) {
    request.sequence.number = reader.take<uint64_t>();
    if (request.sequence.number == 0 && !reader.is_short()) {
      return Status::error(Code::kInvalidArgument,
                           "bus request: the sequence is 0; wanted a number of 1 or more");
    }
  }
  const Result<std::span<BusTensor>> inputs = take_tensors(reader, head.inputs, "request", memory);
  if (!inputs.ok()) return inputs.status();
  if (head.outputs > limits::kMaxTensors) {
    return Status::error(Code::kInvalidArgument,
                         "bus request: %u outputs are above the limit of %zu", head.outputs,
                         limits::kMaxTensors);
  }
  const auto outputs = memory.allocate_array<std::string_view>(head.outputs);
  if (outputs.size() != head.outputs) return out_of_memory();
  request.model = reader.take_string();
  request.version = reader.take_string();
  for (BusTensor& input : *inputs) input.name = reader.take_string();
  for (std::string_view& output : outputs) output = reader.take_string();
  if (reader.is_short()) return cut_off("request", frame.size());
  if (reader.left() != 0) {
    return Status::error(Code::kInvalidArgument,
                         "bus request of %zu bytes has %zu more than its head tells of",
                         frame.size(), reader.left());
  }
  if ((head.flags & BusRequestHead::kHasTimeout) != 0) request.timeout_us = head.timeout_us;
  request.reply_offset = head.reply_offset;
  request.reply_room = head.reply_room;
  request.inputs = *inputs;
  request.outputs = outputs;
  return request;
}

Result<BusReply> parse_bus_reply(std::span<const std::byte> frame, Allocator& memory) noexcept {
  Reader reader(frame);
  const auto head = reader.take<BusReplyHead>();
  if (reader.is_short()) return cut_off("reply", frame.size());
  LUMEN_RETURN_IF_ERROR(check_version("reply", head.version));
  const Result<std::span<BusTensor>> outputs = take_tensors(reader, head.outputs, "reply", memory);
  if (!outputs.ok()) return outputs.status();
  BusReply reply;
  reply.status = head.status;
  reply.version = reader.take_string();
  for (BusTensor& output : *outputs) output.name = reader.take_string();
  reply.text = reader.take_text(head.text_bytes);
  if (reader.is_short() || reader.left() != 0) return cut_off("reply", frame.size());
  reply.outputs = *outputs;
  return reply;
}

std::optional<size_t> frame_bytes(const BusRequest& request) noexcept {
  size_t bytes = sizeof(BusRequestHead);
  if (request.ttl_ms) bytes += sizeof(uint64_t);
  if (request.sequence.number != 0) bytes += sizeof(uint64_t);
  bool fits = add_tensors(bytes, request.inputs) && add_string(bytes, request.model) &&
              add_string(bytes, request.version) && request.outputs.size() <= limits::kMaxTensors;
  for (const std::string_view output : request.outputs) fits = fits && add_string(bytes, output);
  if (!fits || bytes > kMaxBusRequestBytes) return std::nullopt;
  return bytes;
}

std::optional<size_t> frame_bytes(const BusReply& reply) noexcept {
  size_t bytes = sizeof(BusReplyHead) + reply.text.size();
  const bool fits = add_tensors(bytes, reply.outputs) && add_string(bytes, reply.version) &&
                    reply.text.size() <= UINT32_MAX;
  if (!fits) return std::nullopt;
  return bytes;
}

void write_bus_request(const BusRequest& request, std::span<std::byte> frame) noexcept {
  Writer writer(frame);
  writer.put(BusRequestHead{.version = kBusInferVersion,
                            .flags = flags_of(request),
                            .inputs = static_cast<uint16_t>(request.inputs.size()),
                            .outputs = static_cast<uint16_t>(request.outputs.size()),
                            .timeout_us = request.timeout_us.value_or(0),
                            .reply_offset = request.reply_offset,
                            .reply_room = request.reply_room});
  if (request.ttl_ms) writer.put(*request.ttl_ms);
  if (request.sequence.number != 0) writer.put(request.sequence.number);
  put_tensors(writer, request.inputs);
  writer.put_string(request.model);
  writer.put_string(request.version);
  for (const BusTensor& input : request.inputs) writer.put_string(input.name);
  for (const std::string_view output : request.outputs) writer.put_string(output);
  LUMEN_DCHECK(writer.is_full());
}

void write_bus_reply(const BusReply& reply, std::span<std::byte> frame) noexcept {
  Writer writer(frame);
  writer.put(BusReplyHead{.version = kBusInferVersion,
                          .status = reply.status,
                          .outputs = static_cast<uint16_t>(reply.outputs.size()),
                          .reserved0 = 0,
                          .text_bytes = static_cast<uint32_t>(reply.text.size()),
                          .reserved1 = 0});
  put_tensors(writer, reply.outputs);
  writer.put_string(reply.version);
  for (const BusTensor& output : reply.outputs) writer.put_string(output.name);
  writer.put_text(reply.text);
  LUMEN_DCHECK(writer.is_full());
}

}  // namespace lumen::wire
