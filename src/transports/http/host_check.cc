// Host against this machine's names. See the header for threads and memory.
#include <lumen/transports/http/host_check.h>

#include "transports/http/comma_list.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

namespace lumen::http {
namespace {

// RFC 1035 2.3.4, and more than any address as text.
constexpr size_t kMaxHostBytes = 255;

bool equals_lower(std::string_view text, std::string_view lower_text) noexcept {
  return std::ranges::equal(text, lower_text, {}, lower);
}

in6_addr mapped(in_addr v4) noexcept {
  in6_addr out{};
  out.s6_addr[10] = out.s6_addr[11] = 0xff;
  std::memcpy(&out.s6_addr[12], &v4, sizeof(v4));
  return out;
}

std::optional<in6_addr> parse_address(std::string_view text) noexcept {
  char buffer[kMaxHostBytes + 1];
  if (text.size() > kMaxHostBytes) return std::nullopt;
  buffer[text.copy(buffer, text.size())] = '\0';
  in_addr v4{};
  if (inet_pton(AF_INET, buffer, &v4) == 1) return mapped(v4);
  in6_addr v6{};
  if (inet_pton(AF_INET6, buffer, &v6) == 1) return v6;
  return std::nullopt;
}

std::optional<in6_addr> address_of(const sockaddr* address) noexcept {
  if (address == nullptr) return std::nullopt;
  if (address->sa_family == AF_INET) {
    return mapped(reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
  }
  if (address->sa_family == AF_INET6) {
    return reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  }
  return std::nullopt;
}

bool equal(const in6_addr& a, const in6_addr& b) noexcept {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

// Loopback, and the unspecified address, by which Linux reaches itself too.
bool always_means_this_machine(const in6_addr& address) noexcept {
  if (IN6_IS_ADDR_LOOPBACK(&address) || IN6_IS_ADDR_UNSPECIFIED(&address)) return true;
  if (!IN6_IS_ADDR_V4MAPPED(&address)) return false;
  const uint8_t* const v4 = &address.s6_addr[12];
  return v4[0] == 127 || (v4[0] | v4[1] | v4[2] | v4[3]) == 0;
}

// Without brackets, port and the dot that ends a complete name.
std::string_view name_in(std::string_view host) noexcept {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return end == std::string_view::npos ? std::string_view() : host.substr(1, end - 1);
  }
  if (std::ranges::count(host, ':') == 1) host = host.substr(0, host.find(':'));
  if (host.size() > 1 && host.ends_with('.')) host.remove_suffix(1);
  return host;
}

}  // namespace

bool is_host_list(std::string_view text) noexcept {
  bool good = !text.ends_with(',');
  for_each_element(text, [&good](std::string_view host) {
    if (host == "*") return;
    const bool is_name =
        !host.empty() && host.size() <= kMaxHostBytes && std::ranges::all_of(host, [](char c) {
          return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
                 c == '.' || c == '_';
        });
    good &= is_name || parse_address(host).has_value();
  });
  return good;
}

void HostCheck::add(std::string_view name_or_address) {
  if (name_or_address == "*") allows_all_ = true;
  if (const std::optional<in6_addr> address = parse_address(name_or_address)) {
    addresses_.push_back(*address);
    return;
  }
  std::string name(name_in(name_or_address));
  std::ranges::transform(name, name.begin(), lower);
  if (!name.empty()) names_.push_back(std::move(name));
}

void HostCheck::add_addresses_of_interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return;  // then a connection's own address still counts
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    if (const auto address = address_of(at->ifa_addr)) addresses_.push_back(*address);
  }
  ::freeifaddrs(first);
}

// Its host name, also as mDNS says it, and the names of its addresses in /etc/hosts: the complete
// name, if it has one. The resolver is not asked: a start must not wait for DNS.
void HostCheck::add_names_of_machine() {
  add("localhost");
  char name[kMaxHostBytes + 1] = {};
  if (::gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0') {
    add(name);
    add(std::string(name) + ".local");
  }
  std::ifstream hosts("/etc/hosts");
  for (std::string line; std::getline(hosts, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string address_text;
    words >> address_text;
    const std::optional<in6_addr> address = parse_address(address_text);
    const auto is_same = [&address](const in6_addr& other) { return equal(*address, other); };
    if (!address) continue;
    if (!always_means_this_machine(*address) && std::ranges::none_of(addresses_, is_same)) continue;
    for (std::string word; words >> word;) add(word);
  }
}

HostCheck HostCheck::create(std::string_view allowed) {
  HostCheck check;
  check.add_addresses_of_interfaces();
  check.add_names_of_machine();
  for_each_element(allowed, [&check](std::string_view host) { check.add(host); });
  return check;
}

bool HostCheck::allows(std::string_view host, const sockaddr* own) const noexcept {
  if (allows_all_) return true;
  const std::string_view name = name_in(host);
  if (name.empty()) return false;
  if (const std::optional<in6_addr> address = parse_address(name)) {
    if (always_means_this_machine(*address)) return true;
    const auto is_same = [&address](const in6_addr& other) { return equal(*address, other); };
    if (std::ranges::any_of(addresses_, is_same)) return true;
    const std::optional<in6_addr> own_address = address_of(own);
    return own_address && is_same(*own_address);
  }
  // RFC 6761 6.3: every name below localhost is the loopback.
  constexpr std::string_view kBelowLocalhost = ".localhost";
  if (name.size() > kBelowLocalhost.size() &&
      equals_lower(name.substr(name.size() - kBelowLocalhost.size()), kBelowLocalhost)) {
    return true;
  }
  return std::ranges::any_of(
      names_, [name](const std::string& known) { return equals_lower(name, known); });
}

}  // namespace lumen::http
