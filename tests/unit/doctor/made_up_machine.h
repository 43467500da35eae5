// MadeUpMachine: a Machine over a folder of its own, with answers of a machine on which all is
// well.
// Threads: one. Memory: control plane. Errors: gtest's.
#pragma once

#include "doctor/checks.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace lumen::doctor {

class MadeUpMachine : public testing::Test {
 protected:
  MadeUpMachine() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lumen-doctor-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    machine.root = pattern;
    machine.runtime_dir = "/run/user/1000";
    machine.user = 1000;
    machine.descriptors_needed = 4182;
    machine.file_system = [](const auto&) -> Result<FileSystem> {
      return FileSystem{.is_tmpfs = true, .bytes = kGiB, .free_bytes = kGiB};
    };
    machine.is_writable = [](const auto&) { return true; };
    machine.cpu_features = [this] { return features; };
    machine.amx_permission = [] { return 0; };
    machine.io_uring = [] { return 0; };
    machine.membarrier = [] { return 0; };
    machine.has_locale = [](const char*) { return true; };
    machine.has_library = [](const char*) { return true; };
    machine.hardware_counter = [] { return 0; };
    machine.clock_read_ns = [] { return uint64_t{20}; };
    machine.core_distance_ns = [](uint32_t, uint32_t) { return std::optional<uint64_t>(31); };
    machine.wake_up_ns = [](uint32_t, uint32_t) { return std::optional<uint64_t>(5'000); };
  }
  ~MadeUpMachine() override {
    std::error_code ignored;
    std::filesystem::remove_all(machine.root, ignored);
  }

  // `path` as on a machine, "/proc/meminfo".
  void write(std::string_view path, std::string_view content) const {
    const auto file = machine.root / std::filesystem::path(path).relative_path();
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content;
  }
  // The CPUs that the process may use, and the rest of its status.
  void use_cpus(std::string_view list, std::string_view capabilities = "0000000000000000") const {
    write("/proc/self/status", "Name:\tlumen\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t" +
                                   std::string(capabilities) + "\nCpus_allowed_list:\t" +
                                   std::string(list) + "\n");
  }

  static void expect_ok(const Finding& found) {
    EXPECT_EQ(found.state, State::kOk) << value_of(found) << ": " << found.mend;
    EXPECT_EQ(found.mend, "");
  }
  // A warning has a mend with this in it, and tells its gain.
  static void expect_warning(const Finding& found, std::string_view mend) {
    EXPECT_EQ(found.state, State::kWarn) << value_of(found);
    EXPECT_NE(found.mend.find(mend), std::string::npos) << found.mend;
    EXPECT_NE(found.gain, "");
  }
  static void expect_unknown(const Finding& found, std::string_view reason) {
    EXPECT_EQ(found.state, State::kUnknown) << value_of(found);
    EXPECT_TRUE(value_of(found).starts_with("not readable: ")) << value_of(found);
    EXPECT_NE(value_of(found).find(reason), std::string::npos) << value_of(found);
  }
  static std::string value_of(const Finding& found) {
    const auto* text = std::get_if<std::string>(&found.value);
    return text != nullptr ? *text : std::to_string(std::get<double>(found.value));
  }
  static double number_of(const Finding& found) {
    const auto* value = std::get_if<double>(&found.value);
    return value != nullptr ? *value : -1e300;
  }

  static constexpr uint64_t kGiB = uint64_t{1} << 30;
  CpuFeatures features{.avx2 = true,
                       .avx512f = true,
                       .avx512_vnni = true,
                       .avx_vnni = true,
                       .amx_tile = true,
                       .amx_int8 = true,
                       .amx_bf16 = true,
                       .hypervisor = ""};
  Machine machine;
};

}  // namespace lumen::doctor
