// See the header.
#include "transports/grpc/reflection.h"

#include <lumen/wire/protobuf.h>
#include <lumen/wire/status_map.h>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpc_service.pb.h>
#include <health.pb.h>
#include <reflection_v1.pb.h>
#include <reflection_v1alpha.pb.h>

#include <algorithm>
#include <span>
#include <vector>

namespace lumen::grpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FileDescriptor;

// Of ServerReflectionRequest.
constexpr uint32_t kFileByName = 3, kFileOfSymbol = 4, kListServices = 7;
// Of ServerReflectionResponse.
constexpr uint32_t kOriginal = 2;

// The file, and before it those that it imports, as a client has to have read them.
void add_files(const FileDescriptor& file, ::grpc::reflection::v1::FileDescriptorResponse& reply) {
  for (int i = 0; i < file.dependency_count(); ++i) add_files(*file.dependency(i), reply);
  google::protobuf::FileDescriptorProto described;
  file.CopyTo(&described);
  file.CopyJsonNameTo(&described);  // or tools write other names than protobuf's own JSON has
  reply.add_file_descriptor_proto(described.SerializeAsString());
}

template <typename Visit>
void for_each_message(const Descriptor& message, const Visit& visit) {
  visit(message.full_name());
  for (int i = 0; i < message.enum_type_count(); ++i) visit(message.enum_type(i)->full_name());
  for (int i = 0; i < message.nested_type_count(); ++i) {
    for_each_message(*message.nested_type(i), visit);
  }
}

template <typename Visit>
void for_each_symbol(const FileDescriptor& file, const Visit& visit) {
  for (int i = 0; i < file.message_type_count(); ++i)
    for_each_message(*file.message_type(i), visit);
  for (int i = 0; i < file.enum_type_count(); ++i) visit(file.enum_type(i)->full_name());
  for (int i = 0; i < file.service_count(); ++i) {
    visit(file.service(i)->full_name());
    for (int k = 0; k < file.service(i)->method_count(); ++k) {
      visit(file.service(i)->method(k)->full_name());
    }
  }
}

std::string error_of(Code code, const char* message) {
  ::grpc::reflection::v1::ServerReflectionResponse reply;
  reply.mutable_error_response()->set_error_code(wire::grpc_status(code));
  reply.mutable_error_response()->set_error_message(message);
  return reply.SerializeAsString();
}

}  // namespace

Reflection::Reflection() {
  ::grpc::reflection::v1::ServerReflectionResponse list;
  for (const FileDescriptor* const served :
       {inference::ServerLiveRequest::descriptor()->file(),
        ::grpc::health::v1::HealthCheckRequest::descriptor()->file(),
        ::grpc::reflection::v1::ServerReflectionRequest::descriptor()->file(),
        ::grpc::reflection::v1alpha::ServerReflectionRequest::descriptor()->file()}) {
    for (int i = 0; i < served->service_count(); ++i) {
      list.mutable_list_services_response()->add_service()->set_name(
          served->service(i)->full_name());
    }
    std::vector<const FileDescriptor*> all{served};
    for (int i = 0; i < served->dependency_count(); ++i) all.push_back(served->dependency(i));
    for (const FileDescriptor* const file : all) {
      ::grpc::reflection::v1::ServerReflectionResponse reply;
      add_files(*file, *reply.mutable_file_descriptor_response());
      const std::string& said = files_[file->name()] = reply.SerializeAsString();
      for_each_symbol(*file, [&](const std::string& name) { symbols_[name] = said; });
    }
  }
  services_ = list.SerializeAsString();
  not_found_ = error_of(Code::kNotFound, "there is no such file or symbol");
  no_extensions_ = error_of(Code::kUnsupported, "no message has extensions");
}

Result<std::string_view> Reflection::answer(std::string_view request,
                                            Allocator& memory) const noexcept {
  std::string_view said = no_extensions_;
  wire::ProtobufReader reader(request);
  for (wire::ProtobufField field; reader.next(field);) {
    if (field.number == kListServices) said = services_;
    if (field.number == kFileByName) {
      const auto found = files_.find(field.bytes);
      said = found == files_.end() ? std::string_view(not_found_) : std::string_view(found->second);
    }
    if (field.number == kFileOfSymbol) {
      const auto found = symbols_.find(field.bytes);
      said = found == symbols_.end() ? std::string_view(not_found_) : found->second;
    }
  }
  if (reader.is_broken()) {
    return Status::error(Code::kInvalidArgument, "the message is no valid protobuf");
  }
  const size_t bytes = wire::field_bytes(request.size()) + said.size();
  const std::span<char> room = memory.allocate_array<char>(bytes);
  if (room.size() != bytes) {
    return Status::error(Code::kTooLarge, "the request's memory has no room for its reply");
  }
  wire::ProtobufWriter out(room.data());
  out.text(kOriginal, request);
  said.copy(out.at(), said.size());
  return std::string_view(room.data(), room.size());
}

}  // namespace lumen::grpc
