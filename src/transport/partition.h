#pragma once

#include "wire/header.h"

namespace ferry::transport {

// Clause 10.9.1.2; our own table holds only the default partition, as a full member.
inline bool in_our_partition(const wire::Header& header) {
  return (header.pkey & 0x7FFF) == 0x7FFF;
}

}  // namespace ferry::transport
