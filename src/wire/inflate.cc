// See the header.
#include <lumen/wire/inflate.h>

#include <lumen/base/check.h>

#include <algorithm>
#include <climits>
#include <memory>
#include <new>
#include <type_traits>

namespace lumen::wire {
namespace {

// The largest window, and zlib's mark for gzip's frame.
constexpr int kWindowBits = 15;
constexpr int kGzipFrame = 16;

}  // namespace

Inflater* Inflater::create(ContentCoding coding, std::span<std::byte> memory) noexcept {
  static_assert(std::is_trivially_destructible_v<Inflater>, "it goes with its block");
  LUMEN_CHECK(memory.size() >= kMemoryBytes);
  return ::new (memory.data()) Inflater(coding, memory.subspan(sizeof(Inflater)));
}

Inflater::Inflater(ContentCoding coding, std::span<std::byte> memory) noexcept
    : left_(memory), coding_(coding) {
  stream_.zalloc = &allocate;
  stream_.zfree = &release;
  stream_.opaque = this;
  const int bits = coding == ContentCoding::kGzip ? kWindowBits + kGzipFrame : kWindowBits;
  LUMEN_CHECK(::inflateInit2(&stream_, bits) == Z_OK);
}

void* Inflater::allocate(void* self, unsigned items, unsigned size) noexcept {
  std::span<std::byte>& left = static_cast<Inflater*>(self)->left_;
  void* at = left.data();
  size_t room = left.size();
  const size_t bytes = size_t{items} * size;
  if (std::align(alignof(std::max_align_t), bytes, at, room) == nullptr) return nullptr;
  left = left.last(room - bytes);
  return at;
}

void Inflater::release(void* self, void* memory) noexcept {
  (void)self;
  (void)memory;
}

Inflater::Step Inflater::refuse(Step step) const noexcept {
  step.state = State::kRefused;
  step.refusal = {400, coding_ == ContentCoding::kGzip
                           ? "the body is not what Content-Encoding gzip says: its data or a "
                             "checksum is damaged, or bytes follow its end"
                           : "the body is not what Content-Encoding deflate (zlib's format) says: "
                             "its data or its checksum is damaged, or bytes follow its end"};
  return step;
}

Inflater::Step Inflater::step(std::string_view input, std::span<char> output) noexcept {
  Step step;
  for (;;) {
    const std::string_view rest = input.substr(step.consumed);
    const std::span<char> room = output.subspan(step.produced);
    if (is_at_end_) {
      if (rest.empty()) return step;
      // Another member; of deflate there is none.
      if (coding_ != ContentCoding::kGzip || ::inflateReset(&stream_) != Z_OK) return refuse(step);
      is_at_end_ = false;
    }
    const auto in = static_cast<unsigned>(std::min<size_t>(rest.size(), UINT_MAX));
    const auto out = static_cast<unsigned>(std::min<size_t>(room.size(), UINT_MAX));
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data()));
    stream_.avail_in = in;
    stream_.next_out = reinterpret_cast<Bytef*>(room.data());
    stream_.avail_out = out;
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    step.consumed += in - stream_.avail_in;
    step.produced += out - stream_.avail_out;
    is_at_end_ = result == Z_STREAM_END;
    if (is_at_end_) continue;
    // Z_BUF_ERROR: neither input nor room was left, which is no error.
    if (result != Z_OK && result != Z_BUF_ERROR) return refuse(step);
    if (stream_.avail_out == 0) {
      step.state = State::kFull;
      return step;
    }
    if (stream_.avail_in == 0) return step;
  }
}

}  // namespace lumen::wire
