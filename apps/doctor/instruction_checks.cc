// Checks of instruction sets, by CPUID. Threads, memory and errors: see checks.h.
#include "doctor/checks.h"

#include <system_error>

namespace lumen::doctor {

Finding check_avx2(const Machine& machine) {
  const CpuFeatures features = machine.cpu_features();
  if (features.avx2) return text("yes");
  return text("no").warn(features.hypervisor.empty()
                             ? "use a CPU of 2013 or later (x86-64-v3)"
                             : "pass the host's CPU through (QEMU: -cpu host)",
                         "models run with 8 floats at a time instead of 4");
}

// Not a warning: most CPUs of desktops have none, and no setting gives them one.
Finding check_avx512(const Machine& machine) {
  if (machine.cpu_features().avx512f) return text("yes");
  return text("no", "models run with 8 floats at a time, not 16");
}

Finding check_vnni(const Machine& machine) {
  const CpuFeatures features = machine.cpu_features();
  if (features.avx512_vnni) return text("yes", features.avx_vnni ? "AVX-512 and AVX" : "AVX-512");
  if (features.avx_vnni) return text("yes", "AVX");
  return text("no", "models in int8 gain less");
}

Finding check_amx(const Machine& machine) {
  const CpuFeatures features = machine.cpu_features();
  if (!features.amx_tile) return text("no", "models in bf16 and int8 gain less");
  std::string kinds = features.amx_int8 ? "int8" : "";
  if (features.amx_bf16) kinds += kinds.empty() ? "bf16" : " and bf16";
  const int error = machine.amx_permission();
  if (error == 0) return text("yes", kinds + ", granted by the kernel");
  return text("not granted", "by the kernel: " + std::generic_category().message(error))
      .warn("boot a kernel of 5.16 or later, without clearcpuid and noxsave",
            "models in bf16 and int8 run on the CPU's matrix units");
}

}  // namespace lumen::doctor
