#pragma once

#include <chrono>
#include <string>
#include <vector>

// Has programs leave an RDMA device of the kernel while a command takes it away, or makes it anew.
namespace ferry::cli {

// Returns when the command has ended and the programs are back, or wait for the device. They come back after `limit`
// in any case. `json`: prints a DetachReply.Report (ferry.proto). Gives the command's exit status, but 1 if that was 0
// and the programs came back before; throws Failure.
int detach(const std::string& device, std::chrono::milliseconds limit,
           const std::vector<std::string>& command, bool json);

}  // namespace ferry::cli
