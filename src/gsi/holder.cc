#include "gsi/holder.h"

#include <unistd.h>

#include <algorithm>

#include "port/slot.h"

namespace ferry::gsi {

bool Holder::hold(const std::vector<port::Address>& wanted) {
  std::erase_if(ports_, [&](const auto& entry) {
    return std::find(wanted.begin(), wanted.end(), entry.first) == wanted.end();
  });
  if (watches_ && ports_.size() < wanted.size()) watch_.open();  // before bind_, to miss no port
  bool all = true;
  for (const port::Address& address : wanted) {
    if (ports_.contains(address)) continue;
    int error = 0;
    if (auto port = bind_(address, &error)) {
      ports_.emplace(address, std::move(port));
    } else {
      all = false;
    }
  }
  if (all) watch_.close();
  return all;
}

bool Holder::port_was_freed() {
  return watch_.closed(port::kRoceUdpPort);
}

void Holder::abandon() {
  for (auto& [address, port] : ports_) {
    if (port->descriptor() >= 0) ::close(port->descriptor());
    (void)port.release();
  }
  ports_.clear();
  watch_.close();
}

}  // namespace ferry::gsi
