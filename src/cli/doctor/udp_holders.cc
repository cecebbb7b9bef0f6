#include "cli/doctor/udp_holders.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/failure.h"

namespace ferry::cli::doctor {
namespace {

namespace fs = std::filesystem;

// The bytes of a line's address: words of four bytes, each printed as a number in this machine's byte order.
std::vector<unsigned char> bytes_of(const std::string& digits) {
  std::vector<unsigned char> bytes;
  for (std::size_t at = 0; at + 8 <= digits.size(); at += 8) {
    const auto word =
        static_cast<std::uint32_t>(std::strtoul(digits.substr(at, 8).c_str(), nullptr, 16));
    unsigned char raw[4];
    std::memcpy(raw, &word, sizeof raw);
    bytes.insert(bytes.end(), raw, raw + sizeof raw);
  }
  return bytes;
}

struct Entry {
  UdpHolder holder;
  std::string inode;
};

//   sl  local_address rem_address   st tx_queue:rx_queue tr:tm->when retrnsmt   uid  timeout inode
void read_list(const std::string& path, std::uint16_t port, std::vector<Entry>* out) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string skipped, local, inode;
    unsigned user = 0;
    fields >> skipped >> local >> skipped >> skipped >> skipped >> skipped >> skipped >> user >>
        skipped >> inode;
    const std::size_t colon = local.find(':');
    if (!fields || colon == std::string::npos) continue;
    if (std::strtoul(local.c_str() + colon + 1, nullptr, 16) != port) continue;
    const auto bytes = bytes_of(local.substr(0, colon));
    Entry entry;
    entry.holder.user = user;
    entry.holder.any_address = std::ranges::all_of(bytes, [](auto byte) { return byte == 0; });
    if (bytes.size() == 4) {
      entry.holder.address =
          port::Address::from_ipv4(std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
                                   std::uint32_t{bytes[2]} << 8 | bytes[3]);
    } else if (bytes.size() == 16) {
      std::memcpy(entry.holder.address.bytes.data(), bytes.data(), bytes.size());
    } else {
      continue;
    }
    entry.inode = inode;
    out->push_back(std::move(entry));
  }
}

// True for a path of a file of this name, also when the file was replaced by another one since.
bool leads_to(const std::string& path, const std::string& name) {
  return path.ends_with("/" + name) || path.ends_with("/" + name + " (deleted)");
}

bool has_library(const std::string& process) {
  std::ifstream maps(process + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (leads_to(line, "libferry.so")) return true;
  }
  return false;
}

std::string program_of(const std::string& process) {
  std::ifstream file(process + "/comm");
  std::string name;
  std::getline(file, name);
  return printable(name);
}

void find_processes(const std::string& proc, std::vector<Entry>* entries) {
  std::map<std::string, std::vector<UdpHolder*>> wanted;
  for (Entry& entry : *entries) {
    wanted[fmt::format("socket:[{}]", entry.inode)].push_back(&entry.holder);
  }
  std::error_code error;
  for (const auto& process : fs::directory_iterator(proc, error)) {
    const std::string name = process.path().filename();
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) == 0) continue;
    std::error_code ignored;
    for (const auto& file : fs::directory_iterator(process.path() / "fd", ignored)) {
      const auto found = wanted.find(fs::read_symlink(file.path(), ignored));
      if (found == wanted.end()) continue;
      for (UdpHolder* holder : found->second) {
        holder->pid = std::atoi(name.c_str());
        holder->program = program_of(process.path());
        const std::string program = fs::read_symlink(process.path() / "exe", ignored);
        const bool is_ferryd = holder->user == 0 && leads_to(program, "ferryd");
        holder->is_ferrys = is_ferryd || has_library(process.path());
      }
    }
  }
}

}  // namespace

std::vector<UdpHolder> udp_holders(std::uint16_t port, const std::string& proc) {
  std::vector<Entry> entries;
  for (const char* list : {"/net/udp", "/net/udp6"}) read_list(proc + list, port, &entries);
  if (!entries.empty()) find_processes(proc, &entries);
  std::vector<UdpHolder> holders;
  for (Entry& entry : entries) holders.push_back(std::move(entry.holder));
  return holders;
}

}  // namespace ferry::cli::doctor
