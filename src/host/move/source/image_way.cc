#include "host/move/source/image_way.h"

#include <cstring>

#include "base/failure.h"
#include "ferry.pb.h"

namespace ferry::host {

void open_image_way(const Peer& peer, const v1::PrepareReply& reply, const Credentials* credentials,
                    std::optional<ImageSender>* sender) {
  ImageToken token;
  if (reply.image_token().size() != token.size() || reply.image_port() > 0xFFFF) {
    throw Failure(peer.name() + " gave a malformed answer");
  }
  std::memcpy(token.data(), reply.image_token().data(), token.size());
  sender->emplace(peer.address(), static_cast<std::uint16_t>(reply.image_port()), token,
                  credentials, peer.identity());
}

}  // namespace ferry::host
