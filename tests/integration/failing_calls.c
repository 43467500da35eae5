// Lets the N-th call of one kind fail, for tests: what a process sees where descriptors, memory or
// the network run out. LUMEN_FAILING_CALLS names a file with the words below, which a test writes
// and reads while the process runs.
// Threads: any. Memory: the mapped file. Errors: without the variable every call is the C
// library's.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { kNone, kAccept, kRead, kWrite, kOpen, kMmap, kMalloc };

struct words {
  _Atomic uint32_t kind;    // that fails; kNone: none
  _Atomic int32_t until;    // calls of that kind before the one that fails
  _Atomic uint32_t failed;  // how many have
};
static struct words* words;

static void* next_symbol(const char* name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void) {
  const char* const path = getenv("LUMEN_FAILING_CALLS");
  if (path == NULL) return;
  int (*const real)(const char*, int, ...) = (int (*)(const char*, int, ...))next_symbol("open64");
  const int fd = real(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* (*const map)(void*, size_t, int, int, int, off_t) =
      (void* (*)(void*, size_t, int, int, int, off_t))next_symbol("mmap64");
  void* const found =
      map(NULL, sizeof(struct words), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (found != MAP_FAILED) words = found;
}

static int fails(enum kind kind) {
  if (words == NULL || atomic_load(&words->kind) != (uint32_t)kind) return 0;
  if (atomic_fetch_sub(&words->until, 1) != 0) return 0;
  atomic_fetch_add(&words->failed, 1);
  return 1;
}

// Event descriptors and pipes between a process's own threads can't fail.
static int leads_outside(int fd) {
  struct stat found;
  return fstat(fd, &found) == 0 && (S_ISSOCK(found.st_mode) || S_ISREG(found.st_mode));
}

#define REAL(type, name, ...)                                     \
  static type (*real)(__VA_ARGS__);                               \
  if (real == NULL) real = (type(*)(__VA_ARGS__))next_symbol(name)

#define FAIL(kind, error, result) \
  do {                            \
    if (fails(kind)) {            \
      errno = error;              \
      return result;              \
    }                             \
  } while (0)

int accept4(int fd, struct sockaddr* address, socklen_t* length, int flags) {
  REAL(int, "accept4", int, struct sockaddr*, socklen_t*, int);
  FAIL(kAccept, EMFILE, -1);
  return real(fd, address, length, flags);
}

ssize_t recv(int fd, void* bytes, size_t length, int flags) {
  REAL(ssize_t, "recv", int, void*, size_t, int);
  FAIL(kRead, ECONNRESET, -1);
  return real(fd, bytes, length, flags);
}
ssize_t readv(int fd, const struct iovec* parts, int count) {
  REAL(ssize_t, "readv", int, const struct iovec*, int);
  if (leads_outside(fd)) FAIL(kRead, EIO, -1);
  return real(fd, parts, count);
}
ssize_t read(int fd, void* bytes, size_t length) {
  REAL(ssize_t, "read", int, void*, size_t);
  if (leads_outside(fd)) FAIL(kRead, EIO, -1);
  return real(fd, bytes, length);
}

ssize_t send(int fd, const void* bytes, size_t length, int flags) {
  REAL(ssize_t, "send", int, const void*, size_t, int);
  FAIL(kWrite, ENOBUFS, -1);
  return real(fd, bytes, length, flags);
}
ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  REAL(ssize_t, "sendmsg", int, const struct msghdr*, int);
  FAIL(kWrite, ENOBUFS, -1);
  return real(fd, message, flags);
}
ssize_t writev(int fd, const struct iovec* parts, int count) {
  REAL(ssize_t, "writev", int, const struct iovec*, int);
  if (leads_outside(fd)) FAIL(kWrite, EIO, -1);
  return real(fd, parts, count);
}
ssize_t write(int fd, const void* bytes, size_t length) {
  REAL(ssize_t, "write", int, const void*, size_t);
  if (leads_outside(fd)) FAIL(kWrite, ENOSPC, -1);
  return real(fd, bytes, length);
}

#define OPEN(name)                                  \
  int name(const char* path, int flags, ...) {      \
    REAL(int, #name, const char*, int, ...);        \
    va_list rest;                                   \
    va_start(rest, flags);                          \
    const mode_t mode = va_arg(rest, mode_t);       \
    va_end(rest);                                   \
    FAIL(kOpen, EMFILE, -1);                        \
    return real(path, flags, mode);                 \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                        \
  int name(int folder, const char* path, int flags, ...) {  \
    REAL(int, #name, int, const char*, int, ...);           \
    va_list rest;                                           \
    va_start(rest, flags);                                  \
    const mode_t mode = va_arg(rest, mode_t);               \
    va_end(rest);                                           \
    FAIL(kOpen, EMFILE, -1);                                \
    return real(folder, path, flags, mode);                 \
  }
OPENAT(openat)
OPENAT(openat64)

#define MMAP(name, offset)                                                          \
  void* name(void* at, size_t length, int rights, int flags, int fd, offset from) { \
    REAL(void*, #name, void*, size_t, int, int, int, offset);                       \
    FAIL(kMmap, ENOMEM, MAP_FAILED);                                                \
    return real(at, length, rights, flags, fd, from);                               \
  }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

// Of operator new only the calls by the program's own code: libraries of models may end the process
// (ONNX Runtime 1.31: an exception leaves a noexcept function) or wait for ever (OpenVINO 2026.4).
static uintptr_t program_begin, program_end;

static int note_program(struct dl_phdr_info* info, size_t size, void* unused) {
  (void)size, (void)unused;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0) continue;
    program_begin = info->dlpi_addr + part->p_vaddr;
    program_end = program_begin + part->p_memsz;
  }
  return 1;  // the first is the program
}

__attribute__((constructor)) static void find_program(void) { dl_iterate_phdr(note_program, NULL); }

static int is_of_program(const void* caller) {
  return (uintptr_t)caller >= program_begin && (uintptr_t)caller < program_end;
}

static void throw_bad_alloc(void) { ((void (*)(void))next_symbol("_ZSt17__throw_bad_allocv"))(); }

void* operator_new(size_t size) __asm__("_Znwm");
void* operator_new(size_t size) {
  REAL(void*, "_Znwm", size_t);
  if (is_of_program(__builtin_return_address(0)) && fails(kMalloc)) throw_bad_alloc();
  return real(size);
}
void* operator_new_array(size_t size) __asm__("_Znam");
void* operator_new_array(size_t size) {
  REAL(void*, "_Znam", size_t);
  if (is_of_program(__builtin_return_address(0)) && fails(kMalloc)) throw_bad_alloc();
  return real(size);
}
void* operator_new_aligned(size_t size, size_t alignment) __asm__("_ZnwmSt11align_val_t");
void* operator_new_aligned(size_t size, size_t alignment) {
  REAL(void*, "_ZnwmSt11align_val_t", size_t, size_t);
  if (is_of_program(__builtin_return_address(0)) && fails(kMalloc)) throw_bad_alloc();
  return real(size, alignment);
}
