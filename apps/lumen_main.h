// lumen_main: the command line of `lumen`, shared by its two executables.
// Threads: the main thread. Memory: control plane. Errors: exit status 1 for a failure, 2 for a
// command line that is wrong, with the reason on stderr.
#pragma once

int lumen_main(int argc, char** argv);
