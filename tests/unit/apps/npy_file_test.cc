// .npy files as NumPy writes them, and the ones that can't be sent.
#include <lumen/client/npy_file.h>

#include <gtest/gtest.h>

#include <string>

namespace lumen::client {
namespace {

// As numpy.save() writes: padded with blanks to a multiple of 64, a line end last.
std::string npy(const std::string& dictionary, const std::string& data, char major = 1) {
  std::string header = dictionary;
  const size_t before = major == 1 ? 10 : 12;
  while ((before + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string out = "\x93NUMPY";
  out += major;
  out += '\0';
  size_t length = header.size();
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i, length >>= 8) {
    out += static_cast<char>(length & 0xff);
  }
  return out + header + data;
}

std::string dictionary(const std::string& descr, const std::string& shape,
                       const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}

std::string refusal(const std::string& content) {
  const auto file = parse_npy(content, "x.npy");
  EXPECT_FALSE(file.ok());
  return file.ok() ? "" : std::string(file.status().message());
}

TEST(NpyFile, ReadsEveryFormatVersion) {
  for (const char major : {'\1', '\2', '\3'}) {
    const auto file = parse_npy(npy(dictionary("<f4", "(2, 3)"), std::string(24, 'x'), major), "x");
    ASSERT_TRUE(file.ok()) << int{major} << ": " << file.status().message();
    EXPECT_EQ(file->type, ElementType::kFp32);
    ASSERT_EQ(file->shape.rank(), 2u);
    EXPECT_EQ(file->shape[0], 2);
    EXPECT_EQ(file->shape[1], 3);
    EXPECT_EQ(file->bytes, std::string(24, 'x'));
  }
}

TEST(NpyFile, ReadsEveryType) {
  const std::pair<const char*, ElementType> rows[] = {
      {"|b1", ElementType::kBool},   {"|u1", ElementType::kUint8},  {"|i1", ElementType::kInt8},
      {"<u2", ElementType::kUint16}, {"<i2", ElementType::kInt16},  {"<u4", ElementType::kUint32},
      {"<i4", ElementType::kInt32},  {"<u8", ElementType::kUint64}, {"<i8", ElementType::kInt64},
      {"<f2", ElementType::kFp16},   {"<f4", ElementType::kFp32},   {"<f8", ElementType::kFp64}};
  for (const auto& [descr, type] : rows) {
    const auto file =
        parse_npy(npy(dictionary(descr, "(1,)"), std::string(element_size(type), '\0')), "x");
    ASSERT_TRUE(file.ok()) << descr;
    EXPECT_EQ(file->type, type) << descr;
    EXPECT_FALSE(numpy_name(type).empty());
  }
}

TEST(NpyFile, ReadsAScalarAndAnEmptyArray) {
  const auto scalar = parse_npy(npy(dictionary("<f8", "()"), std::string(8, '\0')), "x");
  ASSERT_TRUE(scalar.ok());
  EXPECT_EQ(scalar->shape.rank(), 0u);
  const auto empty = parse_npy(npy(dictionary("<f8", "(0, 4)"), ""), "x");
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->bytes.empty());
}

TEST(NpyFile, TakesFortranOrderOnlyWhereItIsTheSame) {
  EXPECT_TRUE(parse_npy(npy(dictionary("<f4", "(2,)", "True"), std::string(8, '\0')), "x").ok());
  EXPECT_NE(refusal(npy(dictionary("<f4", "(2, 2)", "True"), std::string(16, '\0')))
                .find("ascontiguousarray"),
            std::string::npos);
}

TEST(NpyFile, RefusesBigEndianAndSaysHowToSaveItInstead) {
  const std::string message = refusal(npy(dictionary(">f4", "(1,)"), std::string(4, '\0')));
  EXPECT_NE(message.find("astype('<f4')"), std::string::npos) << message;
}

TEST(NpyFile, RefusesTypesThatTheProtocolHasNot) {
  for (const char* descr : {"|O", "<U5", "<c8", "<M8[ns]", ""}) {
    EXPECT_NE(refusal(npy(dictionary(descr, "(1,)"), "")).find("x.npy: "), std::string::npos);
  }
  EXPECT_NE(refusal(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", ""))
                .find("structured"),
            std::string::npos);
}

TEST(NpyFile, RefusesDataThatDoesNotFitItsShape) {
  const std::string message = refusal(npy(dictionary("<f4", "(2,)"), std::string(7, '\0')));
  EXPECT_NE(message.find("7 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("wants 8"), std::string::npos) << message;
}

TEST(NpyFile, RefusesShapesThatAreTooManyTooLargeOrNone) {
  refusal(npy(dictionary("<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), std::string(4, '\0')));
  refusal(npy(dictionary("<f4", "(9223372036854775807, 9223372036854775807)"), ""));
  refusal(npy(dictionary("<f4", "(4611686018427387905,)"), std::string(4, '\0')));
  refusal(npy(dictionary("<f4", "(-1,)"), ""));
  refusal(npy(dictionary("<f4", "(x,)"), ""));
  refusal(npy("{'descr': '<f4', 'fortran_order': False, }", ""));
}

TEST(NpyFile, RefusesEveryFileThatIsCutShort) {
  const std::string whole = npy(dictionary("<f4", "(2,)"), std::string(8, '\0'));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(parse_npy(whole.substr(0, size), "x").ok()) << size;
  }
  EXPECT_TRUE(parse_npy(whole, "x").ok());
}

TEST(NpyFile, NamesAFileThatIsNotThere) {
  const auto file = read_npy("/nonexistent/a.npy");
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.status().message().find("/nonexistent/a.npy"), std::string_view::npos);
}

}  // namespace
}  // namespace lumen::client
