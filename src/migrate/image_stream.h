#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "migrate/unique_fd.h"

// Carries the files of an image from memory (tmpfs) to memory over TCP, beside the gRPC connection:
// a raw stream, because every copy of an image lengthens the blackout. Who may send is decided over
// gRPC: the receiver hands out a token for one transfer.
//
//   stream = magic:32 version:32 token[16] { file } end little-endian file   = 'F' name_length:8
//   mode:16 reserved:32 size:64 name[name_length] content[size] crc32:32     name: no '/', not "."
//   or ".." end    = 'E' reserved[7] files:64 bytes:64 bytes: sum of the contents reply  = error:32
//   reserved:32 bytes:64                                                        error: errno of the
//   receiver, 0: all is there
namespace ferry::migrate {

using ImageToken = std::array<std::byte, 16>;

struct ImageFile {
  std::string name;  // at the receiver
  std::string path;  // at the sender
};

struct ImageTotals {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;         // contents
  std::uint64_t stream_bytes = 0;  // everything sent
};

// Every regular file of a directory.
std::vector<ImageFile> image_files(const std::string& directory);

// Sends and waits for the reply. `address` as for connect_tcp(). Throws Failure.
ImageTotals send_image(const std::string& host, std::uint16_t port, const ImageToken& token,
                       const std::vector<ImageFile>& files);

// Takes transfers on a port of its own.
class ImageReceiver {
 public:
  // Listens on `address` (numeric), any free port. Throws Failure.
  explicit ImageReceiver(const std::string& address);
  ~ImageReceiver();

  std::uint16_t port() const { return port_; }

  // Allows one transfer into `directory`, which exists. `limit`: most bytes taken (then the sender
  // gets ENOMEM).
  ImageToken expect(const std::string& directory, std::uint64_t limit);
  // Waits until the transfer is complete. Throws Failure if it failed, was cancelled, or does not
  // end in time.
  ImageTotals wait(const ImageToken& token, int timeout_ms);
  // Ends a transfer that is no longer wanted; after the return nothing is written to its directory.
  void cancel(const ImageToken& token);

 private:
  struct Transfer {
    std::string directory;
    std::uint64_t limit = 0;
    int socket = -1;  // while receiving
    bool busy = false, done = false;
    int error = 0;
    ImageTotals totals;
  };

  void accept_loop();
  void serve(UniqueFd socket);
  int receive_files(int socket, const Transfer& transfer, ImageTotals* totals);

  UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<ImageToken, Transfer> transfers_;
  unsigned serving_ = 0;
  bool stopping_ = false;
  std::thread acceptor_;
};

}  // namespace ferry::migrate
