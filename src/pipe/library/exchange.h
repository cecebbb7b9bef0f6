#pragma once

#include <chrono>
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
// For so long a program that comes waits for ferry-piped.
inline constexpr std::chrono::seconds kConnectLimit{10};
// Waits while so many others are about to come that there is no room; `at_once`: does not. Empty: nobody listens, or
// there was no room.
UniqueFd connect_driver(const std::string& path, bool at_once = false);
// False: the driver is gone.
bool send_request(int socket, const pipe::ControlRequest& request,
                  const std::vector<int>& descriptors);
// 0, or errno: of the answer, or EPIPE where the driver is gone.
int take_answer(int socket, pipe::ControlReply* reply, std::vector<UniqueFd>* descriptors);
int exchange(int socket, const pipe::ControlRequest& request, const std::vector<int>& given,
             pipe::ControlReply* reply, std::vector<UniqueFd>* descriptors);

}  // namespace ferry::pd
