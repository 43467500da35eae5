// Reflection: each file and symbol that a client may ask for, read by protobuf's own library.
// Threads: one. Memory: the heap. Errors: by gtest.
#include "transports/grpc/reflection.h"

#include "transports/grpc/method.h"
#include "unit/wire/wire_support.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>
#include <reflection_v1.pb.h>

#include <string>

namespace lumen::grpc {
namespace {

using ::grpc::reflection::v1::ServerReflectionRequest;
using ::grpc::reflection::v1::ServerReflectionResponse;

const Reflection& reflection() {
  static const Reflection one;
  return one;
}

ServerReflectionResponse ask(const ServerReflectionRequest& request) {
  wire::test::HeapMemory memory(1 << 20);
  const auto said = reflection().answer(request.SerializeAsString(), memory);
  ServerReflectionResponse reply;
  EXPECT_TRUE(said.ok() && reply.ParseFromString(std::string(*said)));
  EXPECT_EQ(reply.original_request().SerializeAsString(), request.SerializeAsString());
  return reply;
}

ServerReflectionResponse ask_for_symbol(const std::string& name) {
  ServerReflectionRequest request;
  request.set_host("a");
  request.set_file_containing_symbol(name);
  return ask(request);
}

// The files in their order make a pool that knows the symbol.
TEST(ReflectionTest, EveryMethodIsFoundByItsName) {
  for (std::string path : std::vector<std::string>(kPaths.begin(), kPaths.end())) {
    path = path.substr(1);
    path[path.find('/')] = '.';
    google::protobuf::DescriptorPool pool;
    const ServerReflectionResponse reply = ask_for_symbol(path);
    for (const std::string& file : reply.file_descriptor_response().file_descriptor_proto()) {
      google::protobuf::FileDescriptorProto described;
      ASSERT_TRUE(described.ParseFromString(file));
      ASSERT_NE(pool.BuildFile(described), nullptr) << path;
    }
    EXPECT_NE(pool.FindMethodByName(path), nullptr) << path;
  }
}

TEST(ReflectionTest, ListsTheServicesThatThereAre) {
  ServerReflectionRequest request;
  request.set_list_services("*");
  const ServerReflectionResponse reply = ask(request);
  std::string names;
  for (const auto& one : reply.list_services_response().service()) names += one.name() + " ";
  EXPECT_EQ(names,
            "inference.GRPCInferenceService grpc.health.v1.Health "
            "grpc.reflection.v1.ServerReflection grpc.reflection.v1alpha.ServerReflection ");
}

TEST(ReflectionTest, FilesAreFoundByNameAndNestedMessagesToo) {
  ServerReflectionRequest request;
  request.set_file_by_filename("model_config.proto");
  EXPECT_EQ(ask(request).file_descriptor_response().file_descriptor_proto_size(), 1);
  for (const char* name : {"inference.ModelInferRequest.InferInputTensor", "inference.DataType",
                           "grpc.health.v1.HealthCheckResponse.ServingStatus"}) {
    EXPECT_TRUE(ask_for_symbol(name).has_file_descriptor_response()) << name;
  }
}

TEST(ReflectionTest, SaysThatSomethingIsNotThere) {
  EXPECT_EQ(ask_for_symbol("a.b").error_response().error_code(), 5);
  ServerReflectionRequest request;
  request.set_all_extension_numbers_of_type("a.b");
  EXPECT_EQ(ask(request).error_response().error_code(), 12);
  wire::test::HeapMemory memory(1 << 10);
  EXPECT_FALSE(reflection().answer("\x0a\xff", memory).ok());
}

}  // namespace
}  // namespace lumen::grpc
