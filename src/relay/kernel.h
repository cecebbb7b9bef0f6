#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <span>

// rdma_cm of the kernel: in libferry.so /dev/infiniband/rdma_cm, in a test a played one.
namespace ferry::relay {

// The opened device. Ends with its destructor, and all its IDs with it.
class KernelFile {
 public:
  virtual ~KernelFile() = default;
  // Polls readable while an event waits. GET_EVENT does not block on it.
  virtual int descriptor() const = 0;
  virtual dev_t number() const = 0;  // of the character device
  // Writes one command. 0 or an errno value.
  virtual int command(std::span<const std::byte> command) = 0;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Null and *error: it cannot be opened.
  virtual std::unique_ptr<KernelFile> open(int* error) = 0;
};

}  // namespace ferry::relay
