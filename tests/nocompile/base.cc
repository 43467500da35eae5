// Misuses of base that must not compile; run_nocompile.py says how this file is read.
#include <lumen/base/allocator.h>
#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>
#include <lumen/base/unix_socket.h>

#include <string>

namespace lumen {

Status check_port(int port);
Result<int> read_port(std::string_view text);

// A failure of the world can't be overlooked.
void a_status_is_looked_at() {
#ifdef WRONG
  check_port(1);  // error: ignoring return
#else
  if (!check_port(1).ok()) return;
#endif
}
void a_result_is_looked_at() {
#ifdef WRONG
  read_port("1");  // error: ignoring return
#else
  static_cast<void>(read_port("1"));  // a caller that ignores it says so
#endif
}
int a_result_is_no_number(const Result<int>& port) {
#ifdef WRONG
  return port;  // error: cannot convert|no viable conversion
#else
  return port ? *port : 0;
#endif
}

// One owner of a descriptor, which never gets one by accident.
void a_descriptor_has_one_owner(UniqueFd& fd) {
#ifdef WRONG
  const UniqueFd second = fd;  // error: deleted
#else
  const UniqueFd second = std::move(fd);
#endif
}
void a_descriptor_is_not_made_of_any_number() {
#ifdef WRONG
  const UniqueFd fd = 3;  // error: conversion
#else
  const UniqueFd fd{3};
#endif
}
void a_released_descriptor_is_taken(UniqueFd& fd) {
#ifdef WRONG
  fd.release();  // error: ignoring return
#else
  const UniqueFd taken(fd.release());
#endif
}

// Nothing in a request's memory is destroyed.
void an_arena_holds_what_needs_no_destructor(Allocator& memory) {
#ifdef WRONG
  static_cast<void>(memory.allocate_array<std::string>(1));  // error: static assertion failed
#else
  static_cast<void>(memory.allocate_array<std::string_view>(1));
#endif
}
void an_allocator_is_not_owned_through_its_face(Allocator* memory) {
#ifdef WRONG
  delete memory;  // error: protected
#else
  static_cast<void>(memory);
#endif
}
void the_file_of_a_unix_socket_has_one_owner(UnixListener& listener) {
#ifdef WRONG
  const UnixListener second = listener;  // error: deleted
#else
  const UnixListener second = std::move(listener);
#endif
}

}  // namespace lumen
