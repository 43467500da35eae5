// The OpenAPI document names each endpoint with the methods that it takes, and no other.
#include "transports/http/static_pages.h"

#include <gtest/gtest.h>

#include "transports/http/route.h"

#include <array>
#include <map>
#include <set>
#include <sstream>
#include <string>

namespace lumen::http {
namespace {

// The methods of each path, by the document's lines.
std::map<std::string, std::set<std::string>> described() {
  std::map<std::string, std::set<std::string>> paths;
  std::istringstream text{std::string(find_page("/openapi.json")->body)};
  std::string path;
  for (std::string line; std::getline(text, line);) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    line.erase(0, begin);
    if (line.starts_with("\"/")) path = line.substr(1, line.find('"', 1) - 1);
    for (const char* method : {"get", "post"}) {
      if (line.starts_with('"' + std::string(method) + "\": {")) paths[path].insert(method);
    }
    if (line.starts_with("\"components\"")) break;
  }
  return paths;
}

TEST(StaticPages, TheOpenApiDocumentNamesEachEndpointAndItsMethods) {
  std::array<bool, kEndpoints> seen{};
  const auto paths = described();
  for (const auto& [path, methods] : paths) {
    const Endpoint endpoint = route_path(path).endpoint;
    ASSERT_NE(endpoint, Endpoint::kUnknown) << path;
    seen[static_cast<size_t>(endpoint)] = true;
    EXPECT_EQ(methods.contains("get"), traits_of(endpoint).takes_get) << path;
    EXPECT_EQ(methods.contains("post"), traits_of(endpoint).takes_post) << path;
  }
  for (size_t i = 1; i < kEndpoints; ++i) {
    EXPECT_TRUE(seen[i]) << "no path of the document leads to endpoint " << i;
  }
  EXPECT_EQ(paths.size(), 34u);
}

TEST(StaticPages, EachHasARouteAndEachRouteHasOne) {
  for (const char* path : {"/", "/lumen.css", "/lumen.js", "/openapi.json"}) {
    const StaticPage* const page = find_page(path);
    ASSERT_NE(page, nullptr) << path;
    EXPECT_FALSE(page->body.empty());
    EXPECT_EQ(route_path(path).endpoint, Endpoint::kPage);
  }
  EXPECT_EQ(find_page("/lumen.txt"), nullptr);
}

}  // namespace
}  // namespace lumen::http
