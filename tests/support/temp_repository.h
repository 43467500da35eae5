// TempRepository: a model repository in a fresh directory that goes with the object.
// Threads: one. Memory: the heap. Errors: throws, as tests may.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lumen::models {

class TempRepository {
 public:
  TempRepository() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lumen-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = pattern;
  }
  ~TempRepository() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempRepository(const TempRepository&) = delete;
  TempRepository& operator=(const TempRepository&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Writes `relative`, making its directories.
  void write(const std::filesystem::path& relative, std::string_view text) const {
    const std::filesystem::path file = path_ / relative;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }
  // A model that the fake backend takes.
  void add_model(const std::string& name, const std::string& version = "1") const {
    write(std::filesystem::path(name) / version / "model.onnx", "fake");
  }
  void copy_model(const std::filesystem::path& from, const std::string& name,
                  const std::string& version = "1") const {
    const auto to = path_ / name / version;
    std::filesystem::create_directories(to);
    std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace lumen::models
