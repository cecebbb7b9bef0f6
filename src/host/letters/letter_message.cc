#include "host/letters/letter_message.h"

#include <cstring>

#include "base/failure.h"
#include "ferry.pb.h"

namespace ferry::host {

device::Letter::End name_of(const v1::QpName& message) {
  device::Letter::End name;
  if (message.gid().size() != name.gid.bytes.size()) {
    throw Failure("malformed GID in a message between ferryds");
  }
  std::memcpy(name.gid.bytes.data(), message.gid().data(), name.gid.bytes.size());
  name.qpn = message.qpn();
  return name;
}

device::Letter letter_of(const v1::Letter& message) {
  const auto text = std::as_bytes(std::span(message.text()));
  return {name_of(message.from()), name_of(message.to()), {text.begin(), text.end()}};
}

void to_message(const device::Letter::End& name, v1::QpName* message) {
  message->set_gid(name.gid.bytes.data(), name.gid.bytes.size());
  message->set_qpn(name.qpn);
}

void to_message(const device::Letter& letter, v1::Letter* message) {
  to_message(letter.from, message->mutable_from());
  to_message(letter.to, message->mutable_to());
  message->set_text(letter.bytes.data(), letter.bytes.size());
}

}  // namespace ferry::host
