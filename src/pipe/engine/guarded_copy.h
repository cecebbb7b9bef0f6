#pragma once

#include <cstddef>

namespace ferry::pipe {

// From here on a SIGBUS in guarded_copy() is no crash; of the process, once.
void guard_copies();

// memcpy. False: a page of the memory is gone, because a program has punched a hole into its ring and
// the pool of huge pages is empty. What the destination holds then is undefined.
bool guarded_copy(void* to, const void* from, std::size_t length);

}  // namespace ferry::pipe
