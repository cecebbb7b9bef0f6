#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "pipe/protocol/control.h"

// Requests to the driver, and its answers.
namespace ferry::pd {

inline constexpr std::size_t kMostDescriptors = 3;

// Where the driver is, as the environment says.
std::string driver_path();
UniqueFd connect_driver(const std::string& path);
// False: the driver is gone.
bool send_request(int socket, const pipe::ControlRequest& request,
                  const std::vector<int>& descriptors);
// 0, or errno: of the answer, or EPIPE where the driver is gone.
int take_answer(int socket, pipe::ControlReply* reply, std::vector<UniqueFd>* descriptors);
int exchange(int socket, const pipe::ControlRequest& request, const std::vector<int>& given,
             pipe::ControlReply* reply, std::vector<UniqueFd>* descriptors);

// Generations count up, and begin anew after 2^32.
inline bool is_newer(std::uint32_t one, std::uint32_t other) {
  return static_cast<std::int32_t>(one - other) > 0;
}

}  // namespace ferry::pd
