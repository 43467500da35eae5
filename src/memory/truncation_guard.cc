// The table of guarded mappings and the handler of SIGBUS. See the header.
#include <lumen/memory/truncation_guard.h>

#include <lumen/memory/mapping.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace lumen {
namespace {

struct Guarded {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0};  // 0: none
  std::atomic<size_t> size{0};
  std::atomic<uint64_t> lost{0};
  std::array<char, 256> path{};  // written before `begin`
  std::string_view then{};       // the same
};

std::array<Guarded, TruncationGuard::kMax> guarded;
struct sigaction action_before;

void say(const Guarded& one) noexcept {
  static constexpr std::string_view kWhat = "lumen: somebody has truncated ";
  static constexpr std::string_view kWhich = ", which this process has mapped; ";
  const std::string_view path(one.path.data());
  // One write() each, which a signal handler may call. If stderr is gone no user can be told.
  for (const std::string_view text : {kWhat, path, kWhich, one.then, std::string_view("\n")}) {
    if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;
  }
}

// True: there is memory at that address now.
bool replace_page(uintptr_t address) noexcept {
  for (Guarded& one : guarded) {
    // sync[guard.table]: acquire; size and path
    const uintptr_t begin = one.begin.load(std::memory_order_acquire);
    // relaxed: written before `begin`
    const size_t size = one.size.load(std::memory_order_relaxed);
    if (begin == 0 || address < begin || address >= begin + size) continue;
    auto* page = reinterpret_cast<void*>(address / kPageBytes * kPageBytes);
    // Another thread may have done it meanwhile; then its writes since are lost too, as the rest
    // is.
    if (::mmap(page, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
               -1, 0) == MAP_FAILED) {
      return false;
    }
    // relaxed: a number that is told
    if (one.lost.fetch_add(1, std::memory_order_relaxed) == 0) say(one);
    return true;
  }
  return false;
}

void on_bus_error(int, siginfo_t* info, void*) noexcept {
  const int error_before = errno;
  if (!replace_page(reinterpret_cast<uintptr_t>(info->si_addr))) {
    // Not ours: the instruction runs again and finds the action that was there before us.
    (void)::sigaction(SIGBUS, &action_before, nullptr);
    // One that a process has sent belongs to no instruction.
    if (info->si_code <= 0) (void)::raise(SIGBUS);
  }
  errno = error_before;
}

void install_handler() noexcept {
  static const bool once = [] {
    struct sigaction action{};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    return ::sigaction(SIGBUS, &action, &action_before) == 0;
  }();
  static_cast<void>(once);
}

}  // namespace

TruncationGuard::TruncationGuard(std::span<std::byte> mapped, std::string_view path,
                                 std::string_view then) noexcept {
  install_handler();
  for (size_t i = 0; i < kMax; ++i) {
    Guarded& one = guarded[i];
    bool is_taken = false;
    // relaxed, both: `begin` publishes the writes below
    if (!one.taken.compare_exchange_strong(is_taken, true, std::memory_order_relaxed,
                                           std::memory_order_relaxed)) {
      continue;
    }
    index_ = i;
    one.path = {};
    std::ranges::copy(path.substr(0, one.path.size() - 1), one.path.begin());
    one.then = then;
    // relaxed, both: as above
    one.lost.store(0, std::memory_order_relaxed);
    one.size.store(mapped.size(), std::memory_order_relaxed);
    // sync[guard.table]: release; size and path
    one.begin.store(reinterpret_cast<uintptr_t>(mapped.data()), std::memory_order_release);
    return;
  }
}

TruncationGuard::~TruncationGuard() {
  if (!is_active()) return;
  // sync[guard.table]: release; nobody writes to the mapping any more
  guarded[index_].begin.store(0, std::memory_order_release);
  // relaxed: the next owner writes all of it
  guarded[index_].taken.store(false, std::memory_order_relaxed);
}

uint64_t TruncationGuard::pages_lost() const noexcept {
  // relaxed: a number that is told
  return is_active() ? guarded[index_].lost.load(std::memory_order_relaxed) : 0;
}

}  // namespace lumen
