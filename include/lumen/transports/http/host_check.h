// HostCheck: whether a Host is an address or a name of this machine, or one that the user allowed.
// A page in a browser can let a name of its own point to 127.0.0.1 (DNS rebinding) and would then
// read the answers of a server that only listens there; but the browser tells that name in Host.
// Threads: allows() any; create() control plane, at start. Memory: the heap at create() only.
// Errors: false.
#pragma once

#include <netinet/in.h>

#include <string>
#include <string_view>
#include <vector>

namespace lumen::http {

class HostCheck {
 public:
  // `allowed`: names and addresses of the user, separated by commas; "*" allows all.
  [[nodiscard]] static HostCheck create(std::string_view allowed);

  // `host` as the header has it, with or without a port; `own` is the address at which the
  // connection came in (nullptr: unknown): one of this machine's, though it may have got it lately.
  [[nodiscard]] bool allows(std::string_view host, const sockaddr* own) const noexcept;

  // For create() and tests. `name` in any case, without a port.
  void add(std::string_view name_or_address);

 private:
  void add_addresses_of_interfaces();
  void add_names_of_machine();

  bool allows_all_ = false;
  std::vector<std::string> names_;   // in lower case
  std::vector<in6_addr> addresses_;  // IPv4 as ::ffff:a.b.c.d
};

// A comma-separated list of names and addresses without ports, or "*".
[[nodiscard]] bool is_host_list(std::string_view text) noexcept;

}  // namespace lumen::http
