// read_file: whole files, and what can't be read. Threads: one. Memory: the heap. Errors: by gtest.
#include <lumen/base/text_file.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace lumen {
namespace {

using testing::HasSubstr;

class TextFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(file_); }
  const std::filesystem::path file_ =
      std::filesystem::temp_directory_path() / ("lumen-text-" + std::to_string(::getpid()));
};

TEST_F(TextFile, IsReadWhole) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{64} * 1024, size_t{200'001}}) {
    const std::string wanted(bytes, 'x');
    std::ofstream(file_) << wanted;
    const Result<std::string> text = read_file(file_);
    ASSERT_TRUE(text.ok()) << text.status().message();
    EXPECT_EQ(*text, wanted);
  }
}

TEST_F(TextFile, OfTheKernelHasNoSizeAndIsReadWholeToo) {
  const Result<std::string> text = read_file("/proc/self/status");
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("Threads:"));
}

TEST_F(TextFile, ThatIsADirectoryOrIsNotThereIsAnError) {
  const Result<std::string> directory = read_file("/tmp");
  ASSERT_FALSE(directory.ok());
  EXPECT_THAT(std::string(directory.status().message()), HasSubstr("/tmp: Is a directory"));
  EXPECT_FALSE(read_file(file_).ok());
}

}  // namespace
}  // namespace lumen
