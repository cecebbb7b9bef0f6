#pragma once

#include <infiniband/verbs.h>

#include <errno.h>

#include <new>
#include <utility>

// What every file with ibv_* entry points needs. verbs.h wraps some functions in macros; we define
// the functions.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define FERRY_EXPORT extern "C" __attribute__((visibility("default")))

// Functions of libibverbs that its public header does not declare.
extern "C" {
int ibv_query_gid_type(ibv_context* context, uint8_t port_number, unsigned index, int* type);
int _ibv_query_gid_ex(ibv_context* context, uint32_t port_number, uint32_t index,
                      ibv_gid_entry* entry, uint32_t flags, size_t entry_size);
}

namespace ferry::verbs {

// Runs the body of an entry point, which gives an errno value. No exception crosses the C ABI.
template <typename Body>
int guarded(Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  } catch (...) {
    return EIO;
  }
}

// The two ways in which libibverbs reports an error through errno.
template <typename T>
T* pointer_or_errno(int error, T* object) {
  if (!error) return object;
  errno = error;
  return nullptr;
}
inline int minus_one_or_errno(int error) {
  if (!error) return 0;
  errno = error;
  return -1;
}

}  // namespace ferry::verbs
