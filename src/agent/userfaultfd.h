#pragma once

namespace ferry::agent {

// Makes a userfaultfd of this process that marks the pages written to, without stopping the writers
// (WP_ASYNC, Linux 6.7); nothing is registered with it yet. `device`: a descriptor of
// /dev/userfaultfd, which needs no privilege of this process and passes the system call filters of
// containers; -1: uses the system call. Gives the descriptor, or -errno.
int make_userfaultfd(int device);

}  // namespace ferry::agent
