// The `lumen` executable. All it does is in lumen_main.cc, which lumen_engine shares.
// Runs on the main thread, before any other exists.
// Allocates nothing.
// Errors: the exit status of lumen_main().
#include "lumen_main.h"

int main(int argc, char** argv) { return lumen_main(argc, argv); }
