#pragma once

#include <string>

#include "store/recipients.h"

namespace ferry::cli {

// The private key in this file, whose text is wiped. Throws Failure.
store::PrivateKey private_key(const std::string& file);

}  // namespace ferry::cli
