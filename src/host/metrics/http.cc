#include "host/metrics/http.h"

#include <fmt/core.h>

namespace ferry::host {
namespace {

constexpr std::string_view kPath = "/metrics";

std::string answer(std::string_view status, std::string_view type, std::string_view body,
                   bool with_body, std::string_view more = {}) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n{}",
      status, type, body.size(), more, with_body ? body : std::string_view());
}

std::string refusal(std::string_view status, std::string_view more = {}) {
  return answer(status, "text/plain; charset=utf-8", fmt::format("{}\n", status), true, more);
}

// The path of a request's target, which may name the host as well.
std::string_view path_of(std::string_view target) {
  constexpr std::string_view kScheme = "http://", kSafeScheme = "https://";
  for (const auto scheme : {kScheme, kSafeScheme}) {
    if (!target.starts_with(scheme)) continue;
    const std::size_t path = target.find('/', scheme.size());
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  return target.substr(0, target.find('?'));
}

}  // namespace

std::string http_answer(std::string_view request, const std::function<std::string()>& page) {
  if (!request.ends_with(kRequestEnd)) return refusal("431 Request Header Fields Too Large");
  const std::string_view line = request.substr(0, request.find("\r\n"));
  const std::size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || first == 0) {
    return refusal("400 Bad Request");
  }
  const std::string_view method = line.substr(0, first), version = line.substr(last + 1);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if (target.empty() || target.find(' ') != std::string_view::npos ||
      !version.starts_with("HTTP/")) {
    return refusal("400 Bad Request");
  }
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return refusal("505 HTTP Version Not Supported");
  }
  if (method != "GET" && method != "HEAD") {
    return refusal("405 Method Not Allowed", "Allow: GET, HEAD\r\n");
  }
  if (path_of(target) != kPath) return refusal("404 Not Found");
  return answer("200 OK", "text/plain; version=0.0.4; charset=utf-8", page(), method == "GET");
}

}  // namespace ferry::host
