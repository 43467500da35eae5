// A made-up library of NVIDIA's driver for tests: two devices, of which the second tells no power.
// Threads: any. Memory: static. Errors: 3 (not supported) where the device does not say.
#include <string.h>

enum { kOk = 0, kInvalid = 2, kNotSupported = 3 };
static int devices[2];

int nvmlInit_v2(void) { return kOk; }
int nvmlShutdown(void) { return kOk; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return kOk;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index > 1) return kInvalid;
  *device = &devices[index];
  return kOk;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned size) {
  const char* text = device == &devices[0] ? "GPU-0001" : "GPU-0002";
  if (size <= strlen(text)) return kInvalid;
  strcpy(uuid, text);
  return kOk;
}
struct utilization {
  unsigned gpu, memory;
};
int nvmlDeviceGetUtilizationRates(void* device, struct utilization* found) {
  found->gpu = device == &devices[0] ? 37 : 0;
  found->memory = 5;
  return kOk;
}
struct memory {
  unsigned long long total, free, used;
};
int nvmlDeviceGetMemoryInfo(void* device, struct memory* found) {
  (void)device;
  found->total = 80ull << 30;
  found->used = 3ull << 30;
  found->free = found->total - found->used;
  return kOk;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  if (device != &devices[0]) return kNotSupported;
  *milliwatts = 123456;
  return kOk;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  if (device != &devices[0]) return kNotSupported;
  *millijoules = 7000;
  return kOk;
}
