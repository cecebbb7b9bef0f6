#include "rules.h"

#include <arpa/inet.h>

#include <cstdlib>

#include "../carriers/failure.h"

namespace nf_chain {

Rule parse_rule(const std::string& text) {
  const std::size_t slash = text.find('/'), colon = text.find(':');
  in_addr network{};
  const int prefix = slash == std::string::npos ? 0 : std::atoi(text.c_str() + slash + 1);
  const int port = colon == std::string::npos ? 0 : std::atoi(text.c_str() + colon + 1);
  if (::inet_pton(AF_INET, text.substr(0, slash).c_str(), &network) != 1 || prefix < 1 ||
      prefix > 32 || port < 0 || port > 65535 || (colon != std::string::npos && port == 0)) {
    carriers::give_up_plainly(
        ("no rule: " + text + "; one is as 10.6.0.0/16 or 10.6.0.0/16:22").c_str());
  }
  const std::uint32_t mask = ~std::uint32_t{0} << (32 - prefix);
  return {ntohl(network.s_addr) & mask, mask, static_cast<std::uint16_t>(port)};
}

}  // namespace nf_chain
