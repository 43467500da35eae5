// The data plane allocates nothing and takes no lock for the protocol's further forms either:
// classes, system shared memory, compressed bodies.
#include "support/call_counter.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <lumen/base/unique_fd.h>

#include "integration/data_plane_server.h"
#include "support/compress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>

namespace lumen::server {
namespace {

constexpr const char* kPath = "/v2/models/mlp/infer";
constexpr size_t kInputBytes = 1024;

class DataPlaneProtocol : public testing::TestWithParam<QueueType> {
 protected:
  void start() {
    models.copy_model(test::source_path("models/mlp/1"), "mlp");
    models.write("mlp/labels.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n");
    served.options.model_repository = models.path();
    served.options.engine.queue_type = GetParam();
    served.start();
  }
  models::TempRepository models;
  DataPlaneServer served;
};

std::string input(const std::string& parameters) {
  return R"({"inputs":[{"name":"input","datatype":"FP32","shape":[1,256],"parameters":{)" +
         parameters + "}}]";
}

std::string with_tensor(const std::string& json, const std::string& headers = "") {
  return post_request(
      kPath, json + std::string(kInputBytes, '\0'),
      headers + "Inference-Header-Content-Length: " + std::to_string(json.size()) + "\r\n");
}

TEST_P(DataPlaneProtocol, ClassesWithLabelsAllocateNothing) {
  start();
  for (const char* binary : {"true", "false"}) {
    const std::string request = with_tensor(
        input(R"("binary_data_size":1024)") +
        R"(,"outputs":[{"name":"output","parameters":{"classification":3,"binary_data":)" + binary +
        "}}]}");
    expect_none("classes", served.count(request, false).data_plane);
  }
}

TEST_P(DataPlaneProtocol, TensorsInSharedMemoryAllocateNothing) {
  start();
  const std::string key = "/test-data-plane-" + std::to_string(::getpid());
  const UniqueFd object(::shm_open(key.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
  ASSERT_TRUE(object.valid());
  ASSERT_EQ(::ftruncate(object.get(), 8192), 0);
  HttpClient control = served.client(true);
  const HttpReply registered = control.exchange(post_request(
      "/v2/systemsharedmemory/region/r/register", R"({"key":")" + key + R"(","byte_size":8192})"));
  EXPECT_EQ(registered.status, 200) << registered.body;
  for (const int offset : {0, 1}) {  // the second one is copied
    const std::string request = post_request(
        kPath, input(R"("shared_memory_region":"r","shared_memory_byte_size":1024,)"
                     R"("shared_memory_offset":)" +
                     std::to_string(offset)) +
                   R"(,"outputs":[{"name":"output","parameters":{"shared_memory_region":"r",)"
                   R"("shared_memory_byte_size":40,"shared_memory_offset":4096}}]})");
    expect_none("shared memory", served.count(request, true).data_plane);
  }
  ::shm_unlink(key.c_str());
}

TEST_P(DataPlaneProtocol, ACompressedBodyAllocatesNothing) {
  start();
  const std::string json = input(R"("binary_data_size":1024)") + "}";
  const std::string packed =
      test::compress(json + std::string(kInputBytes, '\0'), wire::ContentCoding::kGzip);
  const std::string request = post_request(
      kPath, packed,
      "Content-Encoding: gzip\r\nInference-Header-Content-Length: " + std::to_string(json.size()) +
          "\r\n");
  expect_none("gzip", served.count(request, false).data_plane);
}

TEST_P(DataPlaneProtocol, ACompressedReplyAllocatesNothing) {
  start();
  constexpr size_t kRows = 100;  // whose answers are alike
  const std::string json =
      R"({"inputs":[{"name":"input","datatype":"FP32","shape":[100,256],"parameters":)"
      R"({"binary_data_size":102400}}]})";
  const std::string request = post_request(
      kPath, json + std::string(kRows * kInputBytes, '\0'),
      "Accept-Encoding: gzip\r\nInference-Header-Content-Length: " + std::to_string(json.size()) +
          "\r\n");
  expect_none("a compressed reply", served.count(request, false).data_plane);
  EXPECT_GE(served.server->counters().total("replies_compressed"), uint64_t{kRequests});
}

INSTANTIATE_TEST_SUITE_P(Queues, DataPlaneProtocol,
                         testing::Values(QueueType::kMpmc, QueueType::kInline, QueueType::kAuto),
                         [](const testing::TestParamInfo<QueueType>& one) {
                           return std::string(models::name_of(one.param));
                         });

}  // namespace
}  // namespace lumen::server

#endif
