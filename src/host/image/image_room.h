#pragma once

#include <cstdint>
#include <string>

namespace ferry::host {

inline constexpr std::uint64_t kHeadroom = 64ull << 20;  // bytes that stay free beside what arrives
// In the image: what the container has written so far.
inline constexpr char kContainerLog[] = "container.log";

// Where images are on this host, and how much of them finds room.
class ImageRoom {
 public:
  // `directory`: on a tmpfs. `host`: this one's name. `memory_limit`: bytes that one arriving program
  // may take; 0: what is free.
  ImageRoom(std::string directory, std::string host, std::uint64_t memory_limit = 0)
      : directory_(std::move(directory)), host_(std::move(host)), memory_limit_(memory_limit) {}

  // The folder of one move's.
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
