#include "host/proc/tcp_table.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

#include "host/proc/process_facts.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

template <typename Number>
bool read(std::string_view text, Number* number, int base) {
  return std::from_chars(text.data(), text.data() + text.size(), *number, base).ec == std::errc();
}

// "0100007F:1F90": the words of the address as the machine has them in memory, and the port.
bool read_place(std::string_view text, in6_addr* address, int* port) {
  constexpr std::size_t kWord = 8;  // digits
  const std::size_t colon = text.find(':');
  std::array<std::uint32_t, 4> words{0, 0, htonl(0xFFFF), 0};
  if (colon == kWord) {
    if (!read(text.substr(0, kWord), &words[3], 16)) return false;
  } else if (colon == 4 * kWord) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (!read(text.substr(i * kWord, kWord), &words[i], 16)) return false;
    }
  } else {
    return false;
  }
  std::memcpy(address, words.data(), sizeof *address);
  return read(text.substr(colon + 1), port, 16);
}

bool is_anywhere(const in6_addr& address) {
  if (!IN6_IS_ADDR_V4MAPPED(&address)) {
    return IN6_IS_ADDR_UNSPECIFIED(&address) || IN6_IS_ADDR_LOOPBACK(&address);
  }
  const std::uint8_t* ipv4 = address.s6_addr + 12;
  return ipv4[0] == 127 || (ipv4[0] | ipv4[1] | ipv4[2] | ipv4[3]) == 0;
}

std::string text_of(const in6_addr& address) {
  char text[INET6_ADDRSTRLEN];
  const bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(&address);
  const void* bytes = is_ipv4 ? address.s6_addr + 12 : address.s6_addr;
  return ::inet_ntop(is_ipv4 ? AF_INET : AF_INET6, bytes, text, sizeof text) != nullptr ? text : "";
}

}  // namespace

std::optional<TcpSocket> parse_tcp_socket(const std::string& line) {
  constexpr int kCloseWait = 8, kListen = 10;  // TCP_CLOSE_WAIT, TCP_LISTEN
  // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
  std::array<std::string, 10> words;
  std::istringstream stream(line);
  for (auto& word : words) stream >> word;
  TcpSocket socket;
  in6_addr address, peer;
  int state = 0;
  if (!read_place(words[1], &address, &socket.port) ||
      !read_place(words[2], &peer, &socket.peer_port) || !read(words[3], &state, 16) ||
      !read(words[9], &socket.inode, 10)) {
    return std::nullopt;
  }
  socket.address = text_of(address);
  socket.peer_address = text_of(peer);
  socket.is_anywhere = is_anywhere(address);
  socket.listens = state == kListen;
  socket.is_closed = state == kCloseWait;
  return socket;
}

std::vector<TcpSocket> tcp_sockets_of_tree(pid_t root) {
  std::set<std::string> open;
  for (const pid_t pid : process_tree(root)) {
    for (const auto& descriptor : descriptors_of(pid)) open.insert(descriptor.target);
  }
  std::vector<TcpSocket> sockets;
  for (const char* const table : {"tcp", "tcp6"}) {
    std::ifstream lines(fmt::format("/proc/{}/net/{}", root, table));
    for (std::string line; std::getline(lines, line);) {
      const auto socket = parse_tcp_socket(line);
      if (socket && open.contains(fmt::format("socket:[{}]", socket->inode))) {
        sockets.push_back(*socket);
      }
    }
  }
  return sockets;
}

}  // namespace ferry::host
