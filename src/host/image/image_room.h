#pragma once

#include <cstdint>
#include <string>

namespace ferry::host {

inline constexpr std::uint64_t kHeadroom = 64ull << 20;  // bytes that stay free beside what arrives
// The name of a file in the image: what the container has written to its log so far.
inline constexpr char kContainerLog[] = "container.log";

// Where the images on this host are, and for how much there is room.
class ImageRoom {
 public:
  // `directory`: on a tmpfs. `host`: this host's name. `memory_limit`: bytes that one arriving
  // program may take; 0: all that are free.
  ImageRoom(std::string directory, std::string host, std::uint64_t memory_limit = 0)
      : directory_(std::move(directory)), host_(std::move(host)), memory_limit_(memory_limit) {}

  // The folder for the images of this move.
  std::string folder_of(std::uint64_t move_id) const;
  // Bytes of memory that an arriving program may take.
  std::uint64_t available() const;
  // Throws Failure unless images of so many bytes find room.
  void need(std::uint64_t bytes) const;

 private:
  const std::string directory_, host_;
  const std::uint64_t memory_limit_;
};

}  // namespace ferry::host
