// The ONNX Runtime library: found and loaded at the first model that asks for it, its environment,
// and owners of the objects that its C interface hands out. Headers of one version may use a newer
// library: it is asked for the interface of the headers' version.
// Threads: any, but for disable_reports(). Memory: the library's own.
// Errors: Status with the library's own words.
#pragma once

#include <lumen/base/result.h>

#include <onnxruntime_c_api.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace lumen::backends::onnxruntime {

// Set by open() before anything else here is used; never changes afterwards.
[[nodiscard]] const OrtApi& api() noexcept;

struct Release {
  void operator()(OrtEnv* p) const noexcept { api().ReleaseEnv(p); }
  void operator()(OrtSession* p) const noexcept { api().ReleaseSession(p); }
  void operator()(OrtSessionOptions* p) const noexcept { api().ReleaseSessionOptions(p); }
  void operator()(OrtRunOptions* p) const noexcept { api().ReleaseRunOptions(p); }
  void operator()(OrtMemoryInfo* p) const noexcept { api().ReleaseMemoryInfo(p); }
  void operator()(OrtTypeInfo* p) const noexcept { api().ReleaseTypeInfo(p); }
  void operator()(OrtTensorTypeAndShapeInfo* p) const noexcept {
    api().ReleaseTensorTypeAndShapeInfo(p);
  }
  void operator()(OrtValue* p) const noexcept { api().ReleaseValue(p); }
  void operator()(OrtIoBinding* p) const noexcept { api().ReleaseIoBinding(p); }
  void operator()(OrtAllocator* p) const noexcept { api().ReleaseAllocator(p); }
  void operator()(OrtSyncStream* p) const noexcept { api().ReleaseSyncStream(p); }
  void operator()(OrtStatus* p) const noexcept { api().ReleaseStatus(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Release>;
using Error = Owned<OrtStatus>;  // null: none

// The library's refusal. Ends in the backend's face.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Failure with the library's words.
void must(OrtStatus* status);

// From 1.29 on ONNX Runtime reports home on Linux, too: it writes a device id and a database below
// the user's cache folder, and asks DNS for a collector. It reads the variable that this sets once,
// when the library is opened. Called before that by one thread: setenv() must not meet a getenv()
// of a thread that loads another model.
void disable_reports();

class Library {
 public:
  // The same one every time. kUnavailable with the reason when it can't be loaded.
  [[nodiscard]] static Result<std::shared_ptr<Library>> open();

  [[nodiscard]] OrtEnv& env() const noexcept { return *env_; }
  [[nodiscard]] const OrtMemoryInfo& cpu() const noexcept { return *cpu_; }
  [[nodiscard]] static std::string version();  // "1.31.1"; of a library that is open

 private:
  Library() = default;
  Owned<OrtEnv> env_;
  Owned<OrtMemoryInfo> cpu_;
};

}  // namespace lumen::backends::onnxruntime
