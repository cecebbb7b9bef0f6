#include "agent/userfaultfd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ferry::agent {
namespace {

// From headers later than Debian 12's.
constexpr unsigned long kNew = _IO(0xAA, 0x00);  // USERFAULTFD_IOC_NEW
constexpr int kUserModeOnly = 1;                 // UFFD_USER_MODE_ONLY: no privilege needed
constexpr __u64 kUnpopulated = 1 << 13, kAsynchronous = 1 << 15;  // UFFD_FEATURE_WP_*

}  // namespace

int make_userfaultfd(int device) {
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
  const long made = device >= 0 ? ::ioctl(device, kNew, kFlags)
                                : ::syscall(SYS_userfaultfd, kFlags | kUserModeOnly);
  if (made < 0) return -errno;
  const int userfaultfd = static_cast<int>(made);
  uffdio_api request{};
  request.api = UFFD_API;
  request.features = kUnpopulated | kAsynchronous;
  if (::ioctl(userfaultfd, UFFDIO_API, &request) == 0) return userfaultfd;
  const int error = errno;
  ::close(userfaultfd);
  return -error;
}

}  // namespace ferry::agent
