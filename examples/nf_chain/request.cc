#include "request.h"

#include <cstring>

#include "../carriers/failure.h"

namespace nf_chain {

std::size_t whole_messages(const char* bytes, std::size_t size) {
  std::size_t at = 0;
  while (size - at >= sizeof(Header)) {
    Header header;
    std::memcpy(&header, bytes + at, sizeof header);
    if (header.size < sizeof header || header.size > kBatch / 2 + 1024) {
      carriers::give_up_plainly(
          "what has come is no request; is the previous program another one?");
    }
    if (header.size > size - at) break;
    at += header.size;
  }
  return at;
}

}  // namespace nf_chain
