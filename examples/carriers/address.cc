#include "address.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>

#include "failure.h"

namespace carriers {

Address::Address(const std::string& where) : is_unix(is_path(where)) {
  if (is_unix) {
    auto& un = reinterpret_cast<sockaddr_un&>(whole);
    un.sun_family = AF_UNIX;
    if (where.size() >= sizeof un.sun_path) {
      errno = ENAMETOOLONG;
      give_up(where.c_str());
    }
    where.copy(un.sun_path, where.size());
    size = sizeof un;
  } else {
    reinterpret_cast<sockaddr_in&>(whole) = parse(where);
    size = sizeof(sockaddr_in);
  }
}

sockaddr_in parse(const std::string& where) {
  sockaddr_in address{};
  const std::size_t colon = where.rfind(':');
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(where.substr(colon + 1).c_str())));
  if (colon == std::string::npos || address.sin_port == 0 ||
      ::inet_pton(AF_INET, where.substr(0, colon).c_str(), &address.sin_addr) != 1) {
    errno = EINVAL;
    give_up("an address is as 10.0.0.2:5000");
  }
  return address;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> words(1);
  for (const char each : list) {
    if (each == ',')
      words.emplace_back();
    else
      words.back() += each;
  }
  return words;
}

}  // namespace carriers
