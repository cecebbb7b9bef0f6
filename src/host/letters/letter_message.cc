#include "host/letters/letter_message.h"

#include <cstring>

#include "base/failure.h"
#include "ferry.pb.h"

namespace ferry::host {

port::Address gid_of(const std::string& bytes) {
  port::Address gid;
  if (bytes.size() != gid.bytes.size()) {
    throw Failure("malformed GID in a message between ferryds");
  }
  std::memcpy(gid.bytes.data(), bytes.data(), bytes.size());
  return gid;
}

device::Letter::End name_of(const v1::QpName& message) {
  return {gid_of(message.gid()), message.qpn()};
}

device::Letter letter_of(const v1::Letter& message) {
  const auto text = std::as_bytes(std::span(message.text()));
  return {name_of(message.from()), name_of(message.to()), {text.begin(), text.end()}};
}

std::string bytes_of(const port::Address& gid) {
  return {reinterpret_cast<const char*>(gid.bytes.data()), gid.bytes.size()};
}

void to_message(const device::Letter::End& name, v1::QpName* message) {
  message->set_gid(bytes_of(name.gid));
  message->set_qpn(name.qpn);
}

void to_message(const device::Letter& letter, v1::Letter* message) {
  to_message(letter.from, message->mutable_from());
  to_message(letter.to, message->mutable_to());
  message->set_text(letter.bytes.data(), letter.bytes.size());
}

}  // namespace ferry::host
