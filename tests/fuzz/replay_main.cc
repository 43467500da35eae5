// Runs a fuzz target without libFuzzer, for gcc: each file of the folders given, then mutations.
//   fuzz_x [--mutate N] [--seed S] [--keep] [-max_total_time=SECONDS] [-seed=S] DIR...
// --mutate: N mutated inputs for each file; -max_total_time: mutate until then (as ./dev fuzz says
// it and the seed to libFuzzer; its other options are ignored). --keep: writes each input to
// ./crash-input before it runs; a failed run repeated with the same seed then leaves the input that
// fails.
// Threads: one. Memory: the heap. Errors: exit status 1; the target itself aborts.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  uint64_t mutations_per_file = 0;
  uint64_t seed = 1;
  bool keep = false;
  std::chrono::seconds total{0};
  std::vector<std::string> folders;
};

Options read_options(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    constexpr std::string_view kTime = "-max_total_time=";
    constexpr std::string_view kSeed = "-seed=";
    if (argument == "--mutate" && i + 1 < count) {
      options.mutations_per_file = std::strtoull(arguments[++i], nullptr, 10);
    } else if (argument == "--seed" && i + 1 < count) {
      options.seed = std::strtoull(arguments[++i], nullptr, 10);
    } else if (argument == "--keep") {
      options.keep = true;
    } else if (argument.starts_with(kSeed)) {
      options.seed = std::strtoull(arguments[i] + kSeed.size(), nullptr, 10);
    } else if (argument.starts_with(kTime)) {
      options.total = std::chrono::seconds(std::strtoll(arguments[i] + kTime.size(), nullptr, 10));
    } else if (!argument.starts_with('-')) {
      options.folders.emplace_back(argument);
    }
  }
  return options;
}

std::vector<std::string> read_files(const std::vector<std::string>& folders) {
  std::vector<std::filesystem::path> paths;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());  // the order decides the results of a seed
  std::vector<std::string> files;
  for (const std::filesystem::path& path : paths) {
    std::ifstream in(path, std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return files;
}

class Mutator {
 public:
  Mutator(uint64_t seed, const std::vector<std::string>& files) : random_(seed), files_(files) {}

  std::string mutate(std::string text) {
    for (size_t n = 1 + below(6); n > 0; --n) step(text);
    return text;
  }

 private:
  size_t below(size_t n) { return n == 0 ? 0 : random_() % n; }

  void step(std::string& text) {
    static constexpr std::string_view kTelling =
        "\r\n\t \0:;,\"\\{}[]0123456789abcdefx+-.eu%\x7f\xff";
    const size_t at = below(text.size() + 1);
    const size_t length = below(std::min<size_t>(text.size() - at, 16) + 1);
    const auto telling = [this] { return kTelling[below(kTelling.size())]; };
    switch (below(7)) {
      case 0: text.insert(at, 1, telling()); break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(below(text.size() + 1), text.substr(at, length)); break;
      case 3: text.insert(at, length, telling()); break;
      case 4: splice(text, at); break;
      case 5:
        if (at < text.size()) text[at] = telling();
        break;
      default:
        if (at < text.size()) text[at] = static_cast<char>(random_());
        break;
    }
  }

  void splice(std::string& text, size_t at) {
    const std::string& other = files_[below(files_.size())];
    const size_t from = below(other.size() + 1);
    text = text.substr(0, at) + other.substr(from);
  }

  std::mt19937_64 random_;
  const std::vector<std::string>& files_;
};

void run(const std::string& input, bool keep) {
  if (keep) std::ofstream("crash-input", std::ios::binary) << input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

}  // namespace

int main(int count, char** arguments) {
  const Options options = read_options(count, arguments);
  const std::vector<std::string> files = read_files(options.folders);
  if (files.empty()) {
    std::fprintf(stderr, "no files to run in the folders given\n");
    return 1;
  }
  for (const std::string& file : files) run(file, options.keep);
  std::printf("%zu files, seed %llu\n", files.size(),
              static_cast<unsigned long long>(options.seed));
  std::fflush(stdout);
  Mutator mutator(options.seed, files);
  const Clock::time_point end = Clock::now() + options.total;
  uint64_t runs = 0;
  const uint64_t wanted = options.mutations_per_file * files.size();
  while (runs < wanted || (options.total.count() > 0 && Clock::now() < end)) {
    run(mutator.mutate(files[runs % files.size()]), options.keep);
    ++runs;
  }
  std::printf("%llu mutated inputs\n", static_cast<unsigned long long>(runs));
  return 0;
}
