// CallFiles: the files of a model that a load call brought along ("file:1/model.onnx" of its
// parameters, as base64), in a repository of their own below $TMPDIR.
// Threads: one. Memory: the heap, and the disk. Errors: a Status that names the parameter.
#pragma once

#include <lumen/base/result.h>

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace lumen::server {

class CallFiles {
 public:
  // The first of `parameters` that is a file; empty: none is.
  [[nodiscard]] static std::string first_key(const nlohmann::json& parameters);
  [[nodiscard]] static Result<std::unique_ptr<CallFiles>> write(std::string_view model,
                                                                const nlohmann::json& parameters);
  ~CallFiles();  // the files go with it
  CallFiles(const CallFiles&) = delete;
  CallFiles& operator=(const CallFiles&) = delete;

  // The folder in which the model's lies.
  [[nodiscard]] const std::filesystem::path& repository() const noexcept { return repository_; }

 private:
  explicit CallFiles(std::filesystem::path repository) : repository_(std::move(repository)) {}
  [[nodiscard]] Status add(std::string_view model, const std::string& key,
                           const nlohmann::json& value);
  const std::filesystem::path repository_;
};

}  // namespace lumen::server
