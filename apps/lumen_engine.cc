// The `lumen_engine` executable: `lumen serve` with the configuration and the models of the source
// tree that it was built from, so that the classic build ends in a server that runs. A flag that
// the user gives comes later on the command line, and the last one wins.
// Runs on the main thread, before any other exists; allocates the argument list once.
// Errors: the exit status of lumen_main().
#include <string>
#include <string_view>
#include <vector>

#include "lumen_main.h"
#include "trial_process.h"

int main(int argc, char** argv) {
  // The process that tries models is this program, too.
  if (argc > 1 && std::string_view(argv[1]) == kTryModelsCommand) return lumen_main(argc, argv);
  const std::string root = LUMEN_SOURCE_DIR;
  std::vector<std::string> words = {"lumen", "serve"};
  words.insert(words.end(), {"--config", root + "/config.json"});
  words.insert(words.end(), {"--model-repository", root + "/models"});
  words.insert(words.end(), argv + 1, argv + argc);
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);  // argv[argc] is null for main(), so for its callee too
  return lumen_main(static_cast<int>(words.size()), pointers.data());
}
