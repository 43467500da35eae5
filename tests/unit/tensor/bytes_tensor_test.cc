// BYTES tensors that somebody else wrote: lengths that lie.
#include <lumen/tensor/bytes_tensor.h>

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace lumen {
namespace {

TEST(BytesTensor, ChecksLengthsAgainstBytesAndShape) {
  const auto check = [](std::string bytes, const std::vector<int64_t>& shape) {
    TensorView tensor;
    tensor.type = ElementType::kBytes;
    for (const int64_t d : shape) EXPECT_TRUE(tensor.shape.append(d));
    std::vector<std::byte> exact(bytes.size());
    if (!bytes.empty()) std::memcpy(exact.data(), bytes.data(), bytes.size());
    tensor.data = exact.data();
    tensor.byte_size = exact.size();
    return check_bytes_tensor("t", tensor);
  };
  const std::string two("\1\0\0\0a\2\0\0\0bc", 11);
  EXPECT_TRUE(check(two, {2}).ok());
  EXPECT_TRUE(check(two, {1, 2}).ok());
  EXPECT_TRUE(check("", {0}).ok());
  for (const Status& bad : {check(two, {1}), check(two, {3}), check(two.substr(0, 10), {2}),
                            check(two.substr(0, 8), {2}), check(two, {1LL << 40, 1LL << 40}),
                            check(std::string("\xff\xff\xff\xff", 4), {1}), check("", {1})}) {
    EXPECT_EQ(bad.code(), Code::kInvalidArgument);
    EXPECT_NE(bad.message().find("'t'"), std::string_view::npos) << bad.message();
  }
}

}  // namespace
}  // namespace lumen
