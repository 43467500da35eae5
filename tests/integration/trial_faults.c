// Preloaded (LD_PRELOAD) into `lumen`: in the process that tries models, opening a file below crashes/ ends the process
// by SIGFPE, and opening one below hangs/ or hangs_too/ never returns. Elsewhere nothing is changed.
// Threads: any. Memory: none. Errors: none of its own.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static int tries_models;

__attribute__((constructor)) static void look(void) {
  char words[256] = {0};
  int (*next)(const char*, int, ...) = dlsym(RTLD_NEXT, "open");
  const int file = next("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  const ssize_t bytes = read(file, words, sizeof words - 1);
  close(file);
  tries_models = bytes > 0 && memmem(words, (size_t)bytes, "try-models", 10) != NULL;
}

static void misbehave(const char* path) {
  if (!tries_models) return;
  if (strstr(path, "/crashes/1/") != NULL) raise(SIGFPE);
  while (strstr(path, "/hangs/1/") != NULL || strstr(path, "/hangs_too/1/") != NULL) pause();
}

#define REPLACE_OPEN(name)                                        \
  int name(const char* path, int flags, ...) {                    \
    va_list rest;                                                 \
    va_start(rest, flags);                                        \
    const mode_t mode = va_arg(rest, mode_t);                     \
    va_end(rest);                                                 \
    misbehave(path);                                              \
    int (*next)(const char*, int, ...) = dlsym(RTLD_NEXT, #name); \
    return next(path, flags, mode);                               \
  }

REPLACE_OPEN(open)
REPLACE_OPEN(open64)
