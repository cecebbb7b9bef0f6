#include "traffic.h"

#include <cstring>

#include "cipher.h"

namespace nf_chain {
namespace {

constexpr std::uint16_t kPort = 443;
// 10.1.0.0/16: where requests come from without a rule.
constexpr Rule kNoRule{0x0A010000, 0xFFFF0000, 0};
// In each of the four ways below. It is odd, so that who deals requests out in turn is found out.
constexpr std::uint32_t kSources = 1021;

// Who asks, and for what.
void choose_flow(std::size_t number, const Rule& rule, Header* header) {
  const auto turn = static_cast<std::uint32_t>(number / 4) % kSources;
  const std::uint32_t host = turn * 2654435761u & ~rule.mask,
                      last_bit_of_network = rule.mask & -rule.mask;
  header->port = rule.port != 0 ? rule.port : kPort;
  header->source = rule.network | host;
  switch (number % 4) {
    case 0: return;                                         // what the rule is about
    case 1: header->source ^= last_bit_of_network; return;  // the network beside
    case 2:
      if (rule.port != 0)
        header->port ^= 1;  // another port
      else
        header->source = rule.network - 1 - turn;  // an address before
      return;
    default: header->source ^= 0x80000000; return;  // anywhere else
  }
}

void write_content(std::size_t number, char* to, std::size_t size) {
  std::uint64_t state = number;
  for (std::size_t at = 0; at < size; ++at) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    to[at] = static_cast<char>(state >> 56);
  }
}

}  // namespace

Traffic::Traffic(std::size_t count, std::size_t size, const std::optional<Rule>& denied,
                 const std::string& key)
    : count_(count),
      size_(size),
      has_rule_(denied.has_value()),
      messages_(count * message_size()),
      contents_(count * size) {
  Cipher cipher(key, true);
  for (std::size_t number = 0; number < count; ++number) {
    Header head{static_cast<std::uint32_t>(message_size()), static_cast<std::uint32_t>(number), 0,
                0, Header::kRequest};
    choose_flow(number, denied.value_or(kNoRule), &head);
    char* const content = contents_.data() + number * size;
    char* const to = messages_.data() + number * message_size();
    write_content(number, content, size);
    std::memcpy(to, &head, sizeof head);
    cipher.encrypt(head.number, content, size, to + sizeof head);
  }
}

std::size_t Traffic::message_size() const {
  return sizeof(Header) + size_ + Cipher::kTag;
}

}  // namespace nf_chain
