#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

// What ferryd and ferry-rootfs say to each other, on one socket: messages of frames, ended by an
// empty one.
//
//   frame = length:32 content[length]    in this machine's byte order: both ends are on it
//
//   pack    ferryd: names that are sent in any case, each ended by a zero byte
//           ferry-rootfs: an archive, of all or of what has changed since the last one
//   unpack  ferryd: an archive
//           ferry-rootfs: an empty message, when all of it is there
//
// ferry-rootfs ends with errno as its exit status when it fails, and says why on stderr.
namespace ferry::rootfs {

inline constexpr int kSocket = 3;
inline constexpr std::size_t kMostFrame = 256 << 10;

struct Error : std::runtime_error {
  Error(const std::string& what, int error);
  int code;
};

// Throw Error.
void send_frame(int socket, std::span<const std::byte> content);
void end_message(int socket);
// False: the message has ended.
bool receive_frame(int socket, std::vector<std::byte>* content);
// False: nobody is at the other end any more. Between messages that is no failure.
bool await_message(int socket);

}  // namespace ferry::rootfs
