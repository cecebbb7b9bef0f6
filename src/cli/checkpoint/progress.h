#pragma once

#include <string>

#include "host/peers/messages.h"

namespace ferry::cli {

// "store, 1.2 GB of 4.0 GB, 310.0 MB/s, 9 s left"
std::string text_of(const v1::CheckpointProgress& progress);

}  // namespace ferry::cli
