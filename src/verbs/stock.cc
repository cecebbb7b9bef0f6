#include "verbs/stock.h"

#include <dlfcn.h>

namespace ferry::verbs {

void* next_symbol(const char* name, const char* version) {
  return ::dlvsym(RTLD_NEXT, name, version);
}

void* next_symbol(const char* name) {
  return ::dlsym(RTLD_NEXT, name);
}

}  // namespace ferry::verbs
