#include "host/proc/udp_slots.h"

#include <arpa/inet.h>

#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "host/proc/addresses.h"
#include "host/proc/process_facts.h"
#include "port/slot.h"

namespace ferry::host {
namespace {

constexpr std::size_t kWordDigits =
    8;  // the kernel prints an address as words of its own byte order

std::optional<std::uint32_t> hexadecimal(std::string_view text) {
  std::uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, 16);
  if (error != std::errc() || rest != end || text.empty()) return std::nullopt;
  return number;
}

// "0100007F:F001" or the same with four words.
std::optional<UdpSlot> slot_in(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon != kWordDigits && colon != 4 * kWordDigits) return std::nullopt;
  const auto udp_port = hexadecimal(text.substr(colon + 1));
  if (!udp_port || *udp_port > 0xFFFF) return std::nullopt;
  UdpSlot found;
  found.slot = port::slot_of_udp_port(static_cast<std::uint16_t>(*udp_port));
  if (found.slot > port::kMaxSlot) return std::nullopt;
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i * kWordDigits < colon; ++i) {
    const auto word = hexadecimal(text.substr(i * kWordDigits, kWordDigits));
    if (!word) return std::nullopt;
    words[i] = *word;
  }
  if (colon == kWordDigits) {
    found.address = port::Address::from_ipv4(ntohl(words[0]));
  } else {
    std::memcpy(found.address.bytes.data(), words.data(), found.address.bytes.size());
  }
  return found;
}

std::set<std::uint64_t> sockets_of(pid_t pid) {
  std::set<std::uint64_t> inodes;
  for (const Descriptor& descriptor : descriptors_of(pid)) {
    constexpr std::string_view kPrefix = "socket:[";
    const std::string& target = descriptor.target;
    if (!target.starts_with(kPrefix)) continue;
    std::uint64_t inode = 0;
    const auto read =
        std::from_chars(target.data() + kPrefix.size(), target.data() + target.size(), inode);
    if (read.ec == std::errc()) inodes.insert(inode);
  }
  return inodes;
}

}  // namespace

std::vector<UdpSlot> parse_udp_slots(std::istream& table, const std::set<std::uint64_t>& inodes) {
  std::vector<UdpSlot> slots;
  std::string line;
  while (std::getline(table, line)) {
    // sl local remote state queues timer retransmits uid timeout inode
    std::istringstream words(line);
    std::string skipped, local;
    std::uint64_t inode = 0;
    words >> skipped >> local;
    for (int i = 0; i < 7; ++i) words >> skipped;
    if (!(words >> inode) || !inodes.contains(inode)) continue;
    if (const auto slot = slot_in(local)) slots.push_back(*slot);
  }
  return slots;
}

std::vector<UdpSlot> udp_slots_of(pid_t pid) {
  std::vector<UdpSlot> slots;
  const auto inodes = sockets_of(pid);
  if (inodes.empty()) return slots;
  for (const char* const name : {"/proc/self/net/udp", "/proc/self/net/udp6"}) {
    std::ifstream table(name);
    for (const auto& slot : parse_udp_slots(table, inodes)) slots.push_back(slot);
  }
  // Anybody may bind a socket to an address of another host (IP_FREEBIND).
  std::set<port::Address> here;
  for (const auto& [interface, address] : addresses_of_interfaces()) here.insert(address);
  std::erase_if(slots, [&](const UdpSlot& slot) { return !here.contains(slot.address); });
  return slots;
}

}  // namespace ferry::host
