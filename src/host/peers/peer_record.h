#pragma once

#include <string>

namespace ferry::host {

// The ferryd of another host, as records have it: NAME@ADDRESS.
struct PeerRecord {
  std::string address;  // address:port
  std::string name;     // in the ferryd's certificate; empty with --insecure
};

inline PeerRecord parse_peer(const std::string& record) {
  const std::size_t at = record.rfind('@');
  if (at == std::string::npos) return {record, {}};
  return {record.substr(at + 1), record.substr(0, at)};
}

}  // namespace ferry::host
