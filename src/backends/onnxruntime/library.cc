// See the header.
#include "backends/onnxruntime/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>

namespace lumen::backends::onnxruntime {
namespace {

const OrtApiBase* base = nullptr;
const OrtApi* opened_api = nullptr;

// Not linked: the wheel's file has no name that a linker could ask for (its SONAME names a link
// that isn't there), and a server whose models don't need it starts without it. Found by the
// executable's RUNPATH, or where it was when Lumen was built: AddressSanitizer calls dlopen()
// itself, and its RUNPATH is another. Never unloaded: models may outlive each other in any order.
Status load() {
  void* library = ::dlopen(LUMEN_ONNXRUNTIME_FILE, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = ::dlopen(LUMEN_ONNXRUNTIME_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status::error(
        Code::kUnavailable,
        "ONNX Runtime can't be loaded: %s; wanted the library of the Python package "
        "onnxruntime: run ./dev setup, then build again",
        ::dlerror());
  }
  const auto get_base =
      reinterpret_cast<decltype(&OrtGetApiBase)>(::dlsym(library, "OrtGetApiBase"));
  if (get_base == nullptr) {
    return Status::error(Code::kUnavailable, "%s is no ONNX Runtime: it has no OrtGetApiBase",
                         LUMEN_ONNXRUNTIME_LIBRARY);
  }
  base = get_base();
  opened_api = base->GetApi(ORT_API_VERSION);
  if (opened_api == nullptr) {
    return Status::error(Code::kUnavailable,
                         "ONNX Runtime %s is older than the headers that Lumen was built with "
                         "(interface %d)",
                         base->GetVersionString(), ORT_API_VERSION);
  }
  return {};
}

}  // namespace

const OrtApi& api() noexcept { return *opened_api; }

void must(OrtStatus* status) {
  if (status == nullptr) return;
  const Error error(status);
  throw Failure(api().GetErrorMessage(error.get()));
}

void disable_reports() { ::setenv("ORT_DISABLE_TELEMETRY", "1", 1); }

std::string Library::version() { return base->GetVersionString(); }

Result<std::shared_ptr<Library>> Library::open() {
  static std::mutex mutex;
  static std::shared_ptr<Library> library;
  const std::lock_guard lock(mutex);
  if (library != nullptr) return library;
  if (opened_api == nullptr) LUMEN_RETURN_IF_ERROR(load());
  // alloc: once
  std::shared_ptr<Library> made(new Library());
  try {
    // Errors come back as a status; its warnings about models are for their makers.
    OrtEnv* env = nullptr;
    must(api().CreateEnv(ORT_LOGGING_LEVEL_FATAL, "lumen", &env));
    made->env_.reset(env);
    must(api().DisableTelemetryEvents(env));  // of versions that do not read the variable
    OrtMemoryInfo* cpu = nullptr;
    must(api().CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &cpu));
    made->cpu_.reset(cpu);
  } catch (const Failure& failure) {
    return Status::error(Code::kUnavailable, "ONNX Runtime: %s", failure.what());
  }
  library = made;
  return library;
}

}  // namespace lumen::backends::onnxruntime
