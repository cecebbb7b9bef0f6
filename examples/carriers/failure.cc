#include "failure.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace carriers {

void give_up(const char* what) {
  std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, std::strerror(errno));
  std::_Exit(1);
}

void give_up_plainly(const char* what) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
  std::_Exit(1);
}

}  // namespace carriers
