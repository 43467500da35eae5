// Requests to the control plane: the clients that may send them, and their way to its threads. I/O
// thread only; allocates nothing but from the request's memory.
#include "transports/http/request_job.h"

#include "transports/http/http_transport.h"
#include "transports/http/request_handler.h"

#include <lumen/transports/http/cors.h>

#include <unistd.h>

#include <algorithm>

namespace lumen::http {
namespace {

using wire::BodyFraming;
using wire::HttpMethod;

int echo_width(std::string_view text) noexcept {
  return static_cast<int>(std::min<size_t>(text.size(), 200));
}

// A page of this server's own has its address as its origin.
bool is_own_origin(const wire::HttpHead& head) noexcept {
  constexpr std::string_view kScheme = "http://";
  return head.origin.starts_with(kScheme) && head.origin.substr(kScheme.size()) == head.host;
}

}  // namespace

Status RequestHandler::check_key(RequestContext& context) noexcept {
  const ApiKeys* const keys = context.is_local ? nullptr : host_.services().keys.now();
  const Endpoint endpoint = context.route.endpoint;
  // Probes of load balancers and Kubernetes have no key; a page asks for one, and then sends it.
  const bool is_open =
      endpoint == Endpoint::kLive || endpoint == Endpoint::kReady || endpoint == Endpoint::kPage;
  if (keys == nullptr || is_open) return {};
  const std::string_view sent = context.head().authorization;
  context.role = keys->role_of(sent);
  if (context.role != Role::kNone) return {};
  return Status::error(Code::kUnauthenticated,
                       sent.empty() ? "a key is needed: send the header Authorization: Bearer KEY"
                                    : "the key of the header Authorization is not one of this "
                                      "server's; wanted: Bearer KEY");
}

Status RequestHandler::check_audience(Audience audience, const RequestContext& context) noexcept {
  if (audience == Audience::kAll || context.is_local) return {};
  const wire::HttpHead& head = context.head();
  const Options& options = host_.services().options;
  const bool is_memory = audience == Audience::kSharedMemory;
  if (audience == Audience::kControl && context.role != Role::kNone) {
    if (context.role == Role::kControl) return check_origin(head);
    return Status::error(Code::kForbidden,
                         "'%.*s' wants a key with the role control, or the unix socket",
                         echo_width(head.path), head.path.data());
  }
  const bool is_on = is_memory ? options.tcp_shm : options.tcp_control;
  if (audience == Audience::kUnixSocket || !is_on) {
    // A client that can reach the port may use the models; the owner and mode of the socket file
    // decide which users may change the server.
    const char* const but = audience == Audience::kUnixSocket ? ""
                            : is_memory                       ? "; --tcp-shm on allows it over TCP"
                                        : "; --tcp-control on allows it over TCP";
    if (context.route.endpoint == Endpoint::kInfer) {
      return Status::error(Code::kForbidden,
                           "shared memory is for clients of the unix socket; see --unix%s", but);
    }
    return Status::error(Code::kForbidden, "'%.*s' answers on the unix socket only; see --unix%s",
                         echo_width(head.path), head.path.data(), but);
  }
  const std::optional<sockaddr_storage> own = host_.loop().own_address(*context.stream);
  if (!own || !is_loopback(reinterpret_cast<const sockaddr&>(*own))) {
    return Status::error(
        Code::kForbidden,
        "'%.*s' answers clients of this machine only: connect to 127.0.0.1, ::1 or "
        "the unix socket",
        echo_width(head.path), head.path.data());
  }
  return check_origin(head);
}

// A browser lets a page elsewhere send a POST to this machine, and tells where the page is from.
Status RequestHandler::check_origin(const wire::HttpHead& head) noexcept {
  if (head.origin.empty() || is_own_origin(head) ||
      !host_.services().cors.lines_for(head.origin).empty()) {
    return {};
  }
  return Status::error(Code::kForbidden,
                       "pages of origin '%.*s' may not change this server; to allow them, start "
                       "it with that origin in --cors-origins",
                       static_cast<int>(std::min(head.origin.size(), kMaxOriginBytes)),
                       head.origin.data());
}

Result<uid_t> RequestHandler::region_user(const RequestContext& context) noexcept {
  LUMEN_RETURN_IF_ERROR(check_audience(Audience::kSharedMemory, context));
  if (!context.is_local) return ::geteuid();
  const std::optional<PeerCredentials> peer = host_.loop().peer_credentials(*context.stream);
  if (peer) return peer->uid;
  return Status::error(Code::kForbidden, "the kernel does not tell whose the connection is");
}

Next RequestHandler::begin_job(RequestContext& context) noexcept {
  const wire::HttpHead& head = context.head();
  const Endpoint endpoint = context.route.endpoint;
  if (const std::optional<PeerCredentials> peer = host_.loop().peer_credentials(*context.stream)) {
    context.job.by = {.pid = peer->pid, .uid = peer->uid};
  }
  if (!head.content_encoding.empty()) return refuse_coding(context);
  const bool has_body = head.framing == BodyFraming::kChunked || context.body.left() > 0;
  if (head.method != HttpMethod::kPost) return ask(context, {});
  if (has_body) return Next::kReadBody;
  if (endpoint != Endpoint::kEngine && endpoint != Endpoint::kRecording) return ask(context, {});
  return refuse(context,
                Status::error(Code::kInvalidArgument,
                              endpoint == Endpoint::kEngine
                                  ? "a change needs a body: the \"engine\" section of config.json"
                                  : "a change needs a body: {\"action\": \"begin\", \"model\": "
                                    "\"NAME\", \"rows\": 500}"));
}

// Loading takes seconds, and nothing else is to wait for it.
Next RequestHandler::ask(RequestContext& context, std::string_view text) noexcept {
  const Endpoint endpoint = context.route.endpoint;
  context.job.topic = topic_of(endpoint).value_or(service::Job::Topic::kEngine);
  context.job.subject = context.route.region.empty() ? context.route.model : context.route.region;
  const bool loads = endpoint == Endpoint::kLoadModel || endpoint == Endpoint::kUnloadModel;
  return host_.ask(context, loads ? host_.services().loader : host_.services().control, text);
}

}  // namespace lumen::http
