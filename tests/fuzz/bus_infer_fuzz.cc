// Frames of inference over the bus, as server and client read them: no overrun, and an accepted
// frame is the same after it was written and read again.
#include <lumen/wire/bus_infer.h>

#include "fuzz/fuzz_support.h"

#include <algorithm>
#include <vector>

using lumen::Result;
using lumen::fuzz::Copy;
using lumen::fuzz::Memory;
using lumen::wire::BusReply;
using lumen::wire::BusRequest;
using lumen::wire::BusTensor;

namespace {

constexpr size_t kMemoryBytes = 1 << 20;

void check_same(std::span<const BusTensor> a, std::span<const BusTensor> b, const Copy& frame) {
  LUMEN_CHECK(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    LUMEN_CHECK(a[i].name.empty() || frame.holds(a[i].name));
    LUMEN_CHECK(a[i].name == b[i].name && a[i].type == b[i].type && a[i].shape == b[i].shape &&
                a[i].offset == b[i].offset && a[i].bytes == b[i].bytes);
  }
}

void check_request(const BusRequest& request, const Copy& frame, Memory& memory) {
  const auto bytes = frame_bytes(request);
  if (!bytes) return;  // accepted, though longer than a server takes
  LUMEN_CHECK(*bytes == frame.view().size());
  std::vector<std::byte> written(*bytes);
  write_bus_request(request, written);
  const Result<BusRequest> back = lumen::wire::parse_bus_request(written, memory);
  LUMEN_CHECK(back.ok());
  check_same(request.inputs, back->inputs, frame);
  LUMEN_CHECK(
      request.model == back->model && request.version == back->version &&
      request.timeout_us == back->timeout_us && request.reply_offset == back->reply_offset &&
      request.reply_room == back->reply_room && std::ranges::equal(request.outputs, back->outputs));
}

void check_reply(const BusReply& reply, const Copy& frame, Memory& memory) {
  const auto bytes = frame_bytes(reply);
  LUMEN_CHECK(bytes == frame.view().size());
  std::vector<std::byte> written(*bytes);
  write_bus_reply(reply, written);
  const Result<BusReply> back = lumen::wire::parse_bus_reply(written, memory);
  LUMEN_CHECK(back.ok());
  check_same(reply.outputs, back->outputs, frame);
  LUMEN_CHECK(reply.status == back->status && reply.version == back->version &&
              reply.text == back->text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Copy frame(std::string_view(reinterpret_cast<const char*>(data), size));
  const auto bytes = std::as_bytes(std::span(frame.view()));
  Memory memory(kMemoryBytes);
  const Result<BusRequest> request = lumen::wire::parse_bus_request(bytes, memory);
  if (request.ok()) check_request(*request, frame, memory);
  const Result<BusReply> reply = lumen::wire::parse_bus_reply(bytes, memory);
  if (reply.ok()) check_reply(*reply, frame, memory);
  LUMEN_CHECK(request.ok() || !request.status().message().empty());
  LUMEN_CHECK(reply.ok() || !reply.status().message().empty());
  return 0;
}
