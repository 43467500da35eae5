// The doctor's checks of memory, limits and folders.
#include "made_up_machine.h"

namespace lumen::doctor {
namespace {

class MemoryChecks : public MadeUpMachine {
 protected:
  void write_memory(std::string_view available_kib, std::string_view swap = "0") const {
    write("/proc/meminfo",
          "MemTotal:       4194304 kB\nMemAvailable:   " + std::string(available_kib) +
              " kB\nSwapTotal: " + std::string(swap) + " kB\nSwapFree: 0 kB\n");
  }
};

TEST_F(MemoryChecks, MemoryIsThatOfTheCgroupWhereThatIsLess) {
  write_memory("3145728");
  Finding found = check_memory(machine);
  expect_ok(found);
  EXPECT_EQ(number_of(found), 4.0 * kGiB);
  write("/proc/self/cgroup", "0::/app\n");
  write("/sys/fs/cgroup/app/memory.max", "1073741824\n");
  write("/sys/fs/cgroup/app/memory.current", "0\n");
  found = check_memory(machine);
  expect_ok(found);
  EXPECT_EQ(number_of(found), 1.0 * kGiB);
  EXPECT_NE(found.note.find("limited by the cgroup"), std::string::npos);
  write("/sys/fs/cgroup/app/memory.current", "1000000000\n");
  expect_warning(check_memory(machine), "memory.max");
}

TEST_F(MemoryChecks, LittleUnusedMemoryIsAWarning) {
  write_memory("1000");
  expect_warning(check_memory(machine), "end other processes");
}

TEST_F(MemoryChecks, WithoutMeminfoMemoryAndSwapAreUnknown) {
  expect_unknown(check_memory(machine), "/proc/meminfo: No such file");
  expect_unknown(check_swap(machine), "/proc/meminfo: No such file");
  write("/proc/meminfo", "MemTotal: 1 kB\nSwapTotal: much\n");
  expect_unknown(check_swap(machine), "got 'much'");
}

TEST_F(MemoryChecks, SwapIsAWarning) {
  write_memory("3145728");
  EXPECT_EQ(value_of(check_swap(machine)), "none");
  write_memory("3145728", "1048576");
  const Finding found = check_swap(machine);
  expect_warning(found, "swapoff");
  EXPECT_EQ(number_of(found), 1.0 * kGiB);
  EXPECT_EQ(found.note, "1024 MiB used");
}

constexpr const char* kThp = "/sys/kernel/mm/transparent_hugepage/enabled";

TEST_F(MemoryChecks, TransparentHugePagesShouldBeThereForMemoryThatAsks) {
  write(kThp, "always [madvise] never\n");
  expect_ok(check_transparent_huge_pages(machine));
  write(kThp, "[always] madvise never\n");
  expect_warning(check_transparent_huge_pages(machine), "echo madvise");
  write(kThp, "always madvise [never]\n");
  expect_warning(check_transparent_huge_pages(machine), "echo madvise");
}

TEST_F(MemoryChecks, TransparentHugePagesWithoutAModeAreUnknown) {
  expect_unknown(check_transparent_huge_pages(machine), kThp);
  write(kThp, "always madvise never\n");
  expect_unknown(check_transparent_huge_pages(machine), "wanted a mode in brackets");
}

TEST_F(MemoryChecks, ReservedHugePagesThatNobodyUsesAreAWarning) {
  const std::string folder = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
  expect_unknown(check_reserved_huge_pages(machine), "nr_hugepages");
  write_memory("3145728");
  write(folder + "nr_hugepages", "512\n");
  expect_unknown(check_reserved_huge_pages(machine), "free_hugepages");
  write(folder + "free_hugepages", "10\n");
  expect_ok(check_reserved_huge_pages(machine));
  write(folder + "free_hugepages", "500\n");
  expect_warning(check_reserved_huge_pages(machine), "vm.nr_hugepages=0");
}

std::string limits(std::string_view files, std::string_view memory) {
  return "Limit                     Soft Limit           Hard Limit           Units     \n"
         "Max open files            " +
         std::string(files) + "                files     \nMax locked memory         " +
         std::string(memory) + "              bytes     \n";
}

TEST_F(MemoryChecks, LockedMemoryIsToHoldPerfsRings) {
  expect_unknown(check_memlock(machine), "/proc/self/limits: No such file");
  write("/proc/self/limits", limits("1024  4096", "8388608  8388608"));
  expect_ok(check_memlock(machine));
  write("/proc/self/limits", limits("1024  4096", "unlimited  unlimited"));
  expect_ok(check_memlock(machine));
  write("/proc/self/limits", limits("1024  4096", "65536  65536"));
  expect_warning(check_memlock(machine), "ulimit -l");
  write("/proc/self/limits", limits("1024  4096", "some"));
  expect_unknown(check_memlock(machine), "got 'some'");
}

TEST_F(MemoryChecks, DescriptorsAreJudgedByTheHardLimit) {
  expect_unknown(check_descriptors(machine), "/proc/self/limits: No such file");
  write("/proc/self/limits", limits("1024                 524288", "0  0"));
  const Finding found = check_descriptors(machine);
  expect_ok(found);
  EXPECT_EQ(number_of(found), 524288);
  write("/proc/self/limits", limits("1024                 unlimited", "0  0"));
  expect_ok(check_descriptors(machine));
  write("/proc/self/limits", limits("1024                 4096", "0  0"));
  expect_warning(check_descriptors(machine), "nofile=4182");
  write("/proc/self/limits", limits("1024 many", "0  0"));
  expect_unknown(check_descriptors(machine), "wanted two limits");
}

TEST_F(MemoryChecks, AMissingLocaleIsNamedWithThePackageThatHasIt) {
  expect_ok(check_locale(machine));
  machine.has_locale = [](const char* name) { return std::string_view(name) != "en_US.UTF-8"; };
  expect_warning(check_locale(machine), "apt-get install locales-all");
}

TEST_F(MemoryChecks, DevShmIsToBeALargeTmpfs) {
  expect_ok(check_dev_shm(machine));
  FileSystem shm{.is_tmpfs = true, .bytes = kGiB, .free_bytes = 1000};
  machine.file_system = [&shm](const auto& path) -> Result<FileSystem> {
    EXPECT_EQ(path, "/dev/shm");
    return shm;
  };
  expect_warning(check_dev_shm(machine), "--shm-size");
  shm = {.is_tmpfs = false, .bytes = kGiB, .free_bytes = kGiB};
  expect_warning(check_dev_shm(machine), "mount -t tmpfs");
}

TEST_F(MemoryChecks, FoldersThatCantBeLookedAtAreUnknown) {
  machine.file_system = [](const auto& path) -> Result<FileSystem> {
    return Status::error(Code::kForbidden, "%s: Permission denied", path.c_str());
  };
  expect_unknown(check_dev_shm(machine), "/dev/shm: Permission denied");
  expect_unknown(check_runtime_dir(machine), "/run/user/1000: Permission denied");
}

TEST_F(MemoryChecks, RuntimeDirIsToBeThereWritableAndInMemory) {
  expect_ok(check_runtime_dir(machine));
  bool is_tmpfs = false, is_there = true;
  machine.file_system = [&](const auto& path) -> Result<FileSystem> {
    if (!is_there) return Status::error(Code::kNotFound, "%s: No such file", path.c_str());
    return FileSystem{.is_tmpfs = is_tmpfs, .bytes = kGiB, .free_bytes = kGiB};
  };
  Finding found = check_runtime_dir(machine);
  expect_warning(found, "mktemp -d -p /dev/shm");
  EXPECT_EQ(found.note, "not a tmpfs");
  is_there = false;
  found = check_runtime_dir(machine);
  expect_warning(found, "XDG_RUNTIME_DIR");
  EXPECT_EQ(found.note, "not there");
  is_there = is_tmpfs = true;
  machine.is_writable = [](const auto&) { return false; };
  found = check_runtime_dir(machine);
  expect_warning(found, "XDG_RUNTIME_DIR");
  EXPECT_EQ(found.note, "not writable");
}

TEST_F(MemoryChecks, RuntimeDirThatIsNotSetIsMendedByTheOneThatThereIs) {
  machine.runtime_dir.reset();
  expect_warning(check_runtime_dir(machine), "mktemp");
  machine.runtime_dir = "run";
  EXPECT_EQ(check_runtime_dir(machine).note, "not absolute, so not obeyed");
  use_cpus("0");
  write("/run/user/1000/bus", "");
  expect_warning(check_runtime_dir(machine), "export XDG_RUNTIME_DIR=/run/user/1000");
}

}  // namespace
}  // namespace lumen::doctor
