#pragma once

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "host/image/rootfs_helper.h"
#include "host/peers/stream.h"
#include "precopy/page_sink.h"
#include "precopy/page_store.h"

// Carries the files of an image from memory (tmpfs) to memory over a TCP connection beside gRPC's,
// inside TLS where the host has credentials. It is a stream of its own because every copy of an
// image lengthens the blackout. Who may send is decided over gRPC: the receiver hands out a token
// for one transfer, and takes it only from the host that asked for it.
//
// A program whose memory is copied ahead sends pages before its files, and sends those again that
// were written since (precopy/). A container sends its root filesystem in the same way (rootfs/).
//
//   stream = magic:32 version:32 token[16] { pages | kept | round | stop | root | whole }
//            { file | piece } end
//            little-endian
//   pages  = 'P' share:8 reserved:16 ranges:32 process:32 pages:32 { start:64 end:64 } content
//            crc32:32
//            share: what taking pages may take of a processor while none is free (PaceSettings), in
//            255ths; 0: as much as it gets. process: pid in its own pid namespace; content: of all
//            ranges; crc32: of all behind the head
//   kept   = 'K' reserved[3] ranges:32 process:32 reserved:32 { start:64 end:64 } crc32:32
//            what the process still has of its memory: the receiver forgets the rest
//   round  = 'R' reserved[15]    a round has ended; the receiver answers with a reply
//   stop   = 'S' reserved[15]    the program stands still
//   root   = 'T' reserved[3] size:32 reserved:64 content[size] crc32:32    size: kMostRootfs at most
//            of an archive of the root filesystem
//   whole  = 'U' reserved[15]    the archive has ended; the receiver answers with a reply
//   file   = 'F' name_length:8 mode:16 reserved:32 size:64 name[name_length] content[size] crc32:32
//            name: no '/', not "." or ".."
//   piece  = 'A', else as a file: more of the file of that name, whose length is not known before
//   end    = 'E' reserved[7] files:64 bytes:64    files: and pieces; bytes: sum of the contents
//   reply  = error:32 waited:32 bytes:64    error: errno of the receiver, 0: all is there; waited:
//            microseconds of the round that it did nothing, so that programs keep their processors
namespace ferry::host {

class Credentials;

inline constexpr std::uint32_t kImageMagic = 0x474D4946;  // "FIMG"
inline constexpr std::uint32_t kImageVersion = 4;

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

// One transfer. The constructor connects (and shows and demands certificates) before anything is
// frozen, so that the blackout has nothing but the image itself.
class ImageSender : public precopy::PageSink {
 public:
  // `address` as for connect_tcp(); `host`: the name that the receiver's certificate must have.
  // Throws Failure.
  ImageSender(const std::string& address, std::uint16_t port, const ImageToken& token,
              const Credentials* credentials = nullptr, const std::string& host = {});

  // Send memory, before send(). Throw Failure.
  void send_pages(std::int32_t process, const precopy::PageRanges& ranges,
                  std::span<const std::byte> content) override;
  void send_kept(std::int32_t process, const precopy::PageRanges& memory) override;
  void set_floor(double share) override;
  std::chrono::nanoseconds end_round() override;
  void tell_stop();
  std::uint64_t stream_bytes() const { return totals_.stream_bytes; }

  // Sends a piece of the root filesystem, before send(). Throws Failure.
  static constexpr std::size_t kMostRootfs = 256 << 10;
  void send_rootfs(std::span<const std::byte> piece);
  // Returns when the receiver has the whole archive. Throws Failure.
  void end_rootfs();

  // Sends a piece of a file that is still being written. Throws Failure.
  void send_piece(const std::string& name, mode_t mode, std::span<const std::byte> content);

  // Sends the files and waits for the reply; called once. Throws Failure.
  ImageTotals send(const std::vector<ImageFile>& files);
  // Called by another thread: whatever is under way fails at once.
  void break_off() { ::shutdown(stream_.socket(), SHUT_RDWR); }

 private:
  int send_content(int file, std::uint64_t size, std::uint32_t* crc);
  int send_ranges(char tag, std::int32_t process, const precopy::PageRanges& ranges,
                  std::span<const std::byte> content);
  std::chrono::microseconds receive_reply(int error, std::uint64_t expected,
                                          const char* what = "image");

  Stream stream_;
  ImageTotals totals_;
  std::uint8_t share_ = 0;  // of the frames of pages
};

// Takes transfers on a port of its own.
class ImageReceiver {
 public:
  // Listens on `address` (numeric) and `port`; 0: any free one. Throws Failure.
  ImageReceiver(const std::string& address, std::uint16_t port,
                const Credentials* credentials = nullptr);
  ~ImageReceiver();

  std::uint16_t port() const { return port_; }

  // Allows one transfer into `directory`, which exists, from `host` (the name in its certificate).
  // `limit`: the most bytes that are taken (of more the sender gets ENOMEM). `memory`, `rootfs`:
  // take the pages and the root filesystem that come ahead; null: none are taken. Both belong to
  // the transfer until that is over or cancelled.
  ImageToken expect(const std::string& directory, std::uint64_t limit, const std::string& host = {},
                    precopy::PageStore* memory = nullptr, RootfsHelper* rootfs = nullptr);
  // Waits until the transfer is complete. Throws Failure if it failed, was cancelled, or does not
  // end in time.
  ImageTotals wait(const ImageToken& token, int timeout_ms);
  // Ends a transfer that is no longer wanted; after the return nothing is written to its directory.
  void cancel(const ImageToken& token);

 private:
  struct Transfer {
    std::string directory;
    std::uint64_t limit = 0;
    std::string host;
    precopy::PageStore* memory = nullptr;
    RootfsHelper* rootfs = nullptr;
    int socket = -1;  // while receiving
    bool busy = false, done = false;
    int error = 0;
    ImageTotals totals;
  };
  class Reception;

  void accept_loop();
  void serve(UniqueFd socket);

  const Credentials* credentials_;
  UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<ImageToken, Transfer> transfers_;
  unsigned serving_ = 0;
  bool stopping_ = false;
  std::thread acceptor_;
};

}  // namespace ferry::host
