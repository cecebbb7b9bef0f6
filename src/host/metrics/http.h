#pragma once

#include <functional>
#include <string>
#include <string_view>

// The little of HTTP/1.1 that serves one page: a request without a body, one answer, the end.
namespace ferry::host {

// A request ends with an empty line; longer ones are refused.
inline constexpr std::size_t kMostRequest = 8 << 10;
inline constexpr std::string_view kRequestEnd = "\r\n\r\n";

// The whole answer to a request, up to and with its end, or to one that is too long: which has no
// end. `page`: the text of /metrics.
std::string http_answer(std::string_view request, const std::function<std::string()>& page);

}  // namespace ferry::host
