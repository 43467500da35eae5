// See the header.
#include <lumen/otlp/endpoint.h>

#include <algorithm>
#include <array>

namespace lumen::otlp {

Status check_endpoint(std::string_view endpoint) {
  constexpr std::array<std::string_view, 4> kSchemes = {"http://", "https://", "http+unix://",
                                                        "unix:"};
  const bool is_known = std::ranges::any_of(
      kSchemes, [&](std::string_view scheme) { return endpoint.starts_with(scheme); });
  if (is_known) return {};
  const bool is_grpc = endpoint.starts_with("grpc://") || endpoint.starts_with("grpcs://");
  const char* const hint = is_grpc ? "; it has one beside OTLP/gRPC, at port 4318" : "";
  return Status::error(Code::kInvalidArgument, "got '%.*s', wanted %.*s%s",
                       static_cast<int>(endpoint.size()), endpoint.data(),
                       static_cast<int>(kEndpointForms.size()), kEndpointForms.data(), hint);
}

}  // namespace lumen::otlp
