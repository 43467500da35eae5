// A body as a client compresses and inflates it, by zlib. Threads: any. Memory: the heap. Errors:
// LUMEN_CHECK.
#pragma once

#include <lumen/base/check.h>
#include <lumen/wire/inflate.h>

#include <zlib.h>

#include <string>
#include <string_view>

namespace lumen::test {

inline std::string compress(std::string_view plain, wire::ContentCoding coding, int level = 6) {
  constexpr int kWindowBits = 15;
  constexpr int kGzipFrame = 16;
  const int bits = kWindowBits + (coding == wire::ContentCoding::kGzip ? kGzipFrame : 0);
  z_stream stream{};
  LUMEN_CHECK(::deflateInit2(&stream, level, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(::deflateBound(&stream, plain.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<unsigned>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<unsigned>(out.size());
  LUMEN_CHECK(::deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  ::deflateEnd(&stream);
  return out;
}

// Of gzip or deflate, by the body's own head; empty where it is neither, cut or damaged.
inline std::string inflate(std::string_view packed) {
  constexpr int kWindowBits = 15;
  constexpr int kAnyFrame = 32;
  z_stream stream{};
  LUMEN_CHECK(::inflateInit2(&stream, kWindowBits + kAnyFrame) == Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<unsigned>(packed.size());
  std::string out;
  int result = Z_OK;
  while (result == Z_OK) {
    const size_t before = out.size();
    out.resize(before + packed.size() + 4096);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + before);
    stream.avail_out = static_cast<unsigned>(out.size() - before);
    result = ::inflate(&stream, Z_NO_FLUSH);
    out.resize(out.size() - stream.avail_out);
  }
  if (result != Z_STREAM_END || stream.avail_in != 0) out.clear();
  ::inflateEnd(&stream);
  return out;
}

}  // namespace lumen::test
