// Requests to the control plane: the clients that may send them, and their way to its threads. I/O
// thread only; allocates nothing but from the request's memory.
#include "transports/http/request_job.h"

#include "transports/http/http_transport.h"
#include "transports/http/request_handler.h"

#include <lumen/transports/http/cors.h>

#include <algorithm>

namespace lumen::http {
namespace {

using wire::BodyFraming;
using wire::HttpMethod;

// A page of this server's own has its address as its origin.
bool is_own_origin(const wire::HttpHead& head) noexcept {
  constexpr std::string_view kScheme = "http://";
  return head.origin.starts_with(kScheme) && head.origin.substr(kScheme.size()) == head.host;
}

}  // namespace

Status RequestHandler::check_key(RequestContext& context) noexcept {
  const transports::ApiKeys* const keys = context.is_local ? nullptr : host_.services().keys.now();
  const Endpoint endpoint = context.route.endpoint;
  // Probes of load balancers and Kubernetes have no key; a page asks for one, and then sends it.
  const bool is_open =
      endpoint == Endpoint::kLive || endpoint == Endpoint::kReady || endpoint == Endpoint::kPage;
  if (keys == nullptr || is_open) return {};
  const std::string_view sent = context.head().authorization;
  context.role = keys->role_of(sent);
  if (context.role != transports::Role::kNone) return {};
  return Status::error(Code::kUnauthenticated,
                       sent.empty() ? "a key is needed: send the header Authorization: Bearer KEY"
                                    : "the key of the header Authorization is not one of this "
                                      "server's; wanted: Bearer KEY");
}

Status RequestHandler::check_audience(Audience audience, const RequestContext& context) noexcept {
  if (audience == Audience::kAll || context.is_local) return {};
  LUMEN_RETURN_IF_ERROR(transports::check_audience(
      audience, client_of(context), host_.services().options.access, context.head().path));
  return check_origin(context.head());
}

transports::Client RequestHandler::client_of(const RequestContext& context) noexcept {
  return {.loop = context.connection->loop(),
          .stream = *context.stream,
          .is_local = context.is_local,
          .role = context.role};
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
  if (!context.is_local) LUMEN_RETURN_IF_ERROR(check_origin(context.head()));
  return transports::region_user(client_of(context), host_.services().options.access);
}

Next RequestHandler::begin_job(RequestContext& context) noexcept {
  const wire::HttpHead& head = context.head();
  const Endpoint endpoint = context.route.endpoint;
  if (const std::optional<PeerCredentials> peer =
          context.connection->loop().peer_credentials(*context.stream)) {
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
