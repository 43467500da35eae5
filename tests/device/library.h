// The interface of ONNX Runtime that the device was given, and the helpers that its parts share.
// Threads: any. Memory: the library's own. Errors: statuses of ONNX Runtime.
#pragma once

#include "device/control.h"

#include <onnxruntime_c_api.h>

#include <cstdint>

namespace lumen::device {

inline constexpr uint32_t kVendor = 0x4C55;  // nobody's

// Set by CreateEpFactories() before anything else is called.
inline const OrtApi* ort = nullptr;
inline const OrtEpApi* ep_api = nullptr;
inline DeviceControl control;

inline OrtStatus* failed(const char* text) { return ort->CreateStatus(ORT_EP_FAIL, text); }

}  // namespace lumen::device

#define RETURN_IF_FAILED(call) \
  if (OrtStatus* status = (call); status != nullptr) return status
