#pragma once

#include <optional>

#include "host/image/image_stream.h"
#include "host/peers/peer.h"

namespace ferry::host {

// Connects `sender` to where the destination waits for an image, as its answer to Prepare says.
// Throws Failure.
void open_image_way(const Peer& peer, const v1::PrepareReply& reply, const Credentials* credentials,
                    std::optional<ImageSender>* sender);

}  // namespace ferry::host
