// Reflection: the answers of gRPC's server reflection (grpc.reflection.v1 and v1alpha, which have
// the same messages), so that tools need no .proto file.
// Threads: any, once made. Memory: the heap at its making; answer() the memory given. Errors: in
// the reply, as the protocol has them.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/result.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace lumen::grpc {

class Reflection {
 public:
  Reflection();

  // A ServerReflectionRequest to its ServerReflectionResponse. Errors: kInvalidArgument for broken
  // protobuf, kTooLarge without memory.
  [[nodiscard]] Result<std::string_view> answer(std::string_view request,
                                                Allocator& memory) const noexcept;

 private:
  using Table = std::map<std::string, std::string, std::less<>>;

  // Fields of the reply: the files, or the list.
  Table files_;                                                   // by name
  std::map<std::string, std::string_view, std::less<>> symbols_;  // by full name
  std::string services_;
  std::string not_found_;
  std::string no_extensions_;
};

}  // namespace lumen::grpc
