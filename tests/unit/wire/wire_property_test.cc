// Properties over seeded random inputs: round trips, cuts, and simdjson as the judge of JSON.
#include "unit/wire/wire_support.h"

#include <simdjson.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <random>
#include <type_traits>

namespace lumen::wire {
namespace {

using test::concat;
using test::ParsedRequest;

constexpr uint64_t kSeed = 20240607;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t bits() { return engine_(); }
  size_t below(size_t n) { return engine_() % n; }
  bool one_in(size_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

std::string random_string(Random& random) {
  static constexpr std::string_view kParts[] = {"a",
                                                "key",
                                                "\"",
                                                "\\",
                                                "\n",
                                                "\x01",
                                                "\xc3\xa4",
                                                "\xf0\x9f\x98\x80",
                                                "/",
                                                " ",
                                                "0123456789abcdef"};
  std::string out;
  for (size_t n = random.below(5); n > 0; --n) out += kParts[random.below(std::size(kParts))];
  return out;
}

// A tensor of random type, shape and bit patterns; floats are finite, as JSON has no others.
struct RandomTensor {
  explicit RandomTensor(Random& random) {
    do {
      tensor.type = static_cast<ElementType>(random.below(14));
    } while (tensor.type == ElementType::kFp16 || tensor.type == ElementType::kBf16);
    for (size_t rank = random.below(5); rank > 0; --rank) {
      EXPECT_TRUE(tensor.shape.append(static_cast<int64_t>(random.below(5))));
    }
    for (size_t n = *tensor.shape.element_count(); n > 0; --n) add(random);
    tensor.data = reinterpret_cast<std::byte*>(bytes.data());
    tensor.byte_size = bytes.size();
  }

  void add(Random& random) {
    uint64_t bits = random.bits();
    const auto exponent_full = [&](uint64_t mask) { return (bits & mask) == mask; };
    if (tensor.type == ElementType::kBytes) {
      const std::string text = random_string(random);
      const uint32_t length = static_cast<uint32_t>(text.size());
      bytes.append(reinterpret_cast<const char*>(&length), 4).append(text);
      return;
    }
    if (tensor.type == ElementType::kBool) bits &= 1;
    while (tensor.type == ElementType::kFp32 && exponent_full(0x7f800000)) bits = random.bits();
    while (tensor.type == ElementType::kFp64 && exponent_full(0x7ff0000000000000)) {
      bits = random.bits();
    }
    bytes.append(reinterpret_cast<const char*>(&bits), element_size(tensor.type));
  }

  TensorView tensor;
  std::string bytes;
};

TEST(WireProperty, ATensorSurvivesTheWayToJsonAndBack) {
  Random random(kSeed);
  for (int round = 0; round < 3000; ++round) {
    const RandomTensor original(random);
    const ReplyOutput output{"x", original.tensor, false};
    InferReply reply;
    reply.outputs = {&output, 1};
    test::HeapMemory memory;
    const Result<EncodedReply> encoded = encode_infer_reply(reply, memory);
    ASSERT_TRUE(encoded.ok()) << "seed " << kSeed << " round " << round;
    // The reply's output object is a valid input: same keys, data flat.
    const size_t begin = encoded->json.find("\"outputs\":") + 10;
    const std::string request = concat({"{\"inputs\":", encoded->json.substr(begin)});
    const ParsedRequest parsed(request);
    ASSERT_TRUE(parsed.result.ok()) << "seed " << kSeed << " round " << round << "\n"
                                    << request << "\n"
                                    << parsed.result.status().message();
    const TensorView& back = parsed.result->inputs[0].tensor;
    EXPECT_EQ(back.type, original.tensor.type);
    EXPECT_EQ(back.shape, original.tensor.shape);
    ASSERT_EQ(back.byte_size, original.bytes.size()) << request;
    if (back.byte_size > 0) {
      EXPECT_EQ(std::memcmp(back.data, original.bytes.data(), back.byte_size), 0) << request;
    }
  }
}

TEST(WireProperty, ARequestCutAnywhereIsRefused) {
  const std::string whole =
      R"({"id":"a\u00e4","parameters":{"timeout":5,"z":[{"k":-1.5e3},null]},"inputs":[)"
      R"({"name":"x","shape":[2,2],"datatype":"FP32","data":[[1.5,-2],[3e1,0]]},)"
      R"({"data":["a\n","\ud83d\ude00"],"name":"s","shape":[2],"datatype":"BYTES"},)"
      R"({"name":"b","shape":[2],"datatype":"BOOL","data":[true,false]},)"
      R"({"name":"y","shape":[4],"datatype":"INT8","parameters":{"binary_data_size":4}}],)"
      R"("outputs":[{"name":"o","parameters":{"binary_data":true}}]})";
  ASSERT_TRUE(ParsedRequest(whole).result.ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ParsedRequest(whole.substr(0, size)).result.ok()) << size;
  }
}

std::string random_number(Random& random) {
  static constexpr std::string_view kNumbers[] = {"0",    "-0",  "1",   "10", "-1.5", "1e5",
                                                  "2E-3", "01",  "1.",  ".5", "-",    "1e",
                                                  "+1",   "1e+", "0.0", "00"};
  if (random.one_in(4)) return std::string(kNumbers[random.below(std::size(kNumbers))]);
  return std::to_string(static_cast<int32_t>(random.bits()));
}

std::string random_json(Random& random, size_t depth) {
  switch (random.below(depth > 5 ? 4 : 6)) {
    case 0: return random_number(random);
    case 1: return random.one_in(2) ? "true" : random.one_in(2) ? "false" : "null";
    case 2:
    case 3: {
      char buffer[600];
      const size_t size = write_error_body(buffer, random_string(random));
      return std::string(buffer + 9, size - 10);  // the string out of {"error":"..."}
    }
    case 4: {
      std::string out = "[";
      for (size_t n = random.below(4); n > 0; --n) {
        out += random_json(random, depth + 1);
        if (n > 1) out += random.one_in(8) ? " , " : ",";
      }
      return out += "]";
    }
    default: {
      std::string out = "{";
      for (size_t n = random.below(4); n > 0; --n) {
        out += concat({"\"", std::to_string(random.below(50)), "\":"});
        out += random_json(random, depth + 1);
        if (n > 1) out += ",";
      }
      return out += "}";
    }
  }
}

void mutate(std::string& text, Random& random) {
  static constexpr std::string_view kBytes = "{}[]\",:\\ntf0123456789.eE+-u \t\n\x01\xc3\x80\xff";
  const size_t at = random.below(text.size());
  switch (random.below(3)) {
    case 0: text[at] = kBytes[random.below(kBytes.size())]; break;
    case 1: text.insert(at, 1, kBytes[random.below(kBytes.size())]); break;
    default: text.erase(at, 1 + random.below(3)); break;
  }
}

TEST(WireProperty, CallsTheSameTextsJsonAsSimdjson) {
  Random random(kSeed);
  simdjson::dom::parser judge;
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < 40000; ++round) {
    std::string json = concat({R"({"inputs":[],"z":)", random_json(random, 0), "}"});
    const size_t mutations = random.below(4);
    for (size_t i = 0; i < mutations; ++i) mutate(json, random);
    const auto verdict = judge.parse(simdjson::padded_string(json)).error();
    const ParsedRequest ours(json);
    const Status status = ours.result.status();
    const std::string_view reason = status.message();
    if (ours.result.ok()) {
      ++accepted;
      // Ignored numbers may be out of any range: simdjson wants them to fit 64 bits.
      EXPECT_TRUE(verdict == simdjson::SUCCESS || verdict == simdjson::NUMBER_ERROR)
          << "seed " << kSeed << " round " << round << " " << simdjson::error_message(verdict)
          << "\n"
          << json;
    } else {
      ++refused;
      // JSON that we refuse all the same: keys twice, and mutations of an infer request's keys.
      const bool ours_only = reason.find("twice") != std::string_view::npos ||
                             reason.find("input") != std::string_view::npos ||
                             reason.find("wanted a string as") != std::string_view::npos ||
                             reason.find("wanted the request's object") != std::string_view::npos;
      EXPECT_TRUE(verdict != simdjson::SUCCESS || ours_only)
          << "seed " << kSeed << " round " << round << "\n"
          << json << "\n"
          << reason;
    }
  }
  EXPECT_GT(accepted, 10000);
  EXPECT_GT(refused, 10000);
}

TEST(WireProperty, AFloatIsTheOneNearestToItsText) {
  Random random(kSeed);
  for (int round = 0; round < 20000; ++round) {
    // Texts around the middle of two neighbours, where a rounding through double goes wrong.
    const float low = std::bit_cast<float>(static_cast<uint32_t>(random.bits() % 0x7f000000));
    const double middle =
        (static_cast<double>(low) + static_cast<double>(std::nextafter(low, INFINITY))) / 2;
    char text[900];
    int size =
        std::snprintf(text, sizeof(text), "%.*e", static_cast<int>(16 + random.below(60)), middle);
    if (random.one_in(3)) {  // a hair above the middle, far behind the point
      const std::string_view view(text, static_cast<size_t>(size));
      const size_t e = view.find('e');
      const std::string above =
          concat({view.substr(0, e), "0000000000000000000001", view.substr(e)});
      size = std::snprintf(text, sizeof(text), "%s", above.c_str());
    }
    const ParsedRequest parsed(
        concat({R"({"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[)",
                std::string_view(text, static_cast<size_t>(size)), "]}]}"}));
    ASSERT_TRUE(parsed.result.ok()) << text;
    const float got = test::values<float>(parsed.result->inputs[0].tensor)[0];
    EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(std::strtof(text, nullptr)))
        << text << " seed " << kSeed;
  }
}

// Texts of numbers as programs write them, and as they make trouble.
std::string float_text(Random& random) {
  char text[400];
  const auto bits32 = static_cast<uint32_t>(random.bits());
  const float any = std::bit_cast<float>(bits32 % 0x7f800000 | (bits32 & 0x80000000));
  const double unit = static_cast<double>(random.bits() >> 11) * 0x1p-53;
  const double normal = (unit - 0.5) * std::pow(10, static_cast<double>(random.below(12)) - 6);
  const auto printed = [&text](const char* format, int precision, double value) {
    return std::string(
        text, static_cast<size_t>(std::snprintf(text, sizeof(text), format, precision, value)));
  };
  const auto shortest = [&text](auto value) {
    return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
  };
  switch (random.below(10)) {
    case 0: return shortest(any);
    case 1: return shortest(static_cast<float>(normal));
    case 2: return shortest(normal);
    case 3: return shortest(unit);
    case 4: return printed("%.*f", static_cast<int>(random.below(30)), normal);
    case 5: return printed("%.*e", static_cast<int>(random.below(30)), any);
    case 6: return printed("%.*E", static_cast<int>(random.below(30)), normal);
    case 7: return std::to_string(static_cast<int64_t>(random.bits() >> random.below(64)));
    case 8: {  // beside the middle of two floats, below, on and above it
      const float low = std::bit_cast<float>(bits32 % 0x7f000000);
      const double middle = (static_cast<double>(low) + std::nextafter(low, INFINITY)) / 2;
      const double beside = std::nextafter(middle, random.one_in(2) ? 0 : INFINITY);
      return printed("%.*e", static_cast<int>(14 + random.below(50)),
                     random.one_in(2) ? middle : beside);
    }
    default: {  // digits at random, with a point and an exponent at random
      std::string digits = random.one_in(2) ? "0." : std::to_string(random.below(100000)) + ".";
      digits += std::string(random.below(4), '0');
      for (size_t n = 1 + random.below(40); n > 0; --n) {
        digits += static_cast<char>('0' + random.below(10));
      }
      if (random.one_in(3))
        digits += concat({"e", std::to_string(static_cast<int>(random.below(100)) - 50)});
      return digits;
    }
  }
}

template <typename T>
T nearest(const char* text) {
  if constexpr (std::is_same_v<T, float>) {
    return std::strtof(text, nullptr);
  } else {
    return std::strtod(text, nullptr);
  }
}

template <typename T>
void expect_nearest(std::string_view type, int rounds) {
  using Bits = std::conditional_t<std::is_same_v<T, float>, uint32_t, uint64_t>;
  constexpr size_t kNumbers = 500;
  Random random(kSeed);
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::string> texts;
    std::string data;
    while (texts.size() < kNumbers) {
      std::string text = float_text(random);
      if (!std::isfinite(nearest<T>(text.c_str()))) continue;
      data += concat({data.empty() ? "" : random.one_in(2) ? "," : ", ", text});
      texts.push_back(std::move(text));
    }
    const ParsedRequest parsed(concat({R"({"inputs":[{"name":"x","shape":[500],"datatype":")", type,
                                       R"(","data":[)", data, "]}]}"}));
    ASSERT_TRUE(parsed.result.ok()) << parsed.result.status().message() << "\n" << data;
    const std::vector<T> got = test::values<T>(parsed.result->inputs[0].tensor);
    for (size_t i = 0; i < kNumbers; ++i) {
      ASSERT_EQ(std::bit_cast<Bits>(got[i]), std::bit_cast<Bits>(nearest<T>(texts[i].c_str())))
          << texts[i] << " seed " << kSeed << " round " << round;
    }
  }
}

TEST(WireProperty, EveryFloatOfALongTensorIsTheNearestToItsText) {
  expect_nearest<float>("FP32", 1000);
}

TEST(WireProperty, EveryDoubleOfALongTensorIsTheNearestToItsText) {
  expect_nearest<double>("FP64", 400);
}

// The reader looks ahead of the text: bytes there must change nothing.
TEST(WireProperty, BytesBehindTheTextAreNoPartOfItsLastNumber) {
  const std::string whole = R"({"inputs":[{"name":"x","shape":[3],"datatype":"FP32","data":[1,2,3)";
  for (const std::string_view tail : {"", ".5", ".12345678", ".1234567890123456789", "e1"}) {
    const std::string text = concat({whole, tail});
    for (const char behind : {'0', '9', '.', 'e', ',', ']', ' ', '"'}) {
      std::string padded = text + std::string(JsonParser::kPadding, behind);
      JsonParser parser;
      test::HeapMemory memory;
      const auto result =
          parse_infer_head(parser, std::string_view(padded).substr(0, text.size()), memory);
      ASSERT_FALSE(result.ok()) << tail << " behind " << behind;
      EXPECT_NE(result.status().message().find("ends at byte"), std::string_view::npos)
          << result.status().message();
    }
  }
}

}  // namespace
}  // namespace lumen::wire
