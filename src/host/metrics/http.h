#pragma once

#include <functional>
#include <string>
#include <string_view>

// The little of HTTP/1.1 that serves one page: a request without a body, one answer, the end of the connection.
namespace ferry::host {

// A request ends with an empty line. One of more bytes than kMostRequest is refused.
inline constexpr std::size_t kMostRequest = 8 << 10;
inline constexpr std::string_view kRequestEnd = "\r\n\r\n";

// The whole answer to `request`, which has all up to kRequestEnd and kRequestEnd itself; one that does not end so is
// too long, and refused. `page` gives the text of /metrics.
std::string http_answer(std::string_view request, const std::function<std::string()>& page);

}  // namespace ferry::host
