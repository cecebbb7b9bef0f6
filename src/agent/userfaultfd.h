#pragma once

namespace ferry::agent {

// A userfaultfd of this process that marks the pages written to, without stopping whoever writes
// (WP_ASYNC, Linux 6.7); nothing is registered with it yet. `device`: a descriptor of
// /dev/userfaultfd, which needs no privilege of ours and passes the system call filters of
// containers; -1: by the system call. The descriptor, or -errno.
int make_userfaultfd(int device);

}  // namespace ferry::agent
