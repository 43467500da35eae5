// See the header.
#include <lumen/otlp/endpoint.h>

#include <algorithm>
#include <array>

namespace lumen::otlp {

Status check_endpoint(std::string_view endpoint) {
  constexpr std::array<std::string_view, 3> kSchemes = {"http://", "http+unix://", "unix:"};
  const bool is_known = std::ranges::any_of(
      kSchemes, [&](std::string_view scheme) { return endpoint.starts_with(scheme); });
  if (is_known) return {};
  const char* hint = "";
  if (endpoint.starts_with("https://")) {
    hint = "; TLS is not spoken: run a collector on this machine that passes the spans on";
  } else if (endpoint.starts_with("grpc://")) {
    hint = "; it has one beside OTLP/gRPC, at port 4318";
  }
  return Status::error(Code::kInvalidArgument, "got '%.*s', wanted %.*s%s",
                       static_cast<int>(endpoint.size()), endpoint.data(),
                       static_cast<int>(kEndpointForms.size()), kEndpointForms.data(), hint);
}

}  // namespace lumen::otlp
