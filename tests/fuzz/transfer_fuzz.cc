#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/failure.h"
#include "base/net.h"
#include "host/image/image_stream.h"
#include "input.h"
#include "precopy/page_store.h"
#include "wire/bytes.h"
#include "wire/crc32.h"

// The transfer of an image, as a ferryd takes it from another: pages that are copied ahead, what is
// kept of them, rounds, files. Over a real connection of the loopback interface, without TLS.
//
//   input = { op:8 length:16 bytes[length] }    the stream behind its token (host/image/image_stream.h)
//     op & 3 = 0   the bytes as they are
//              1   a frame of ranges: behind it the crc32 of what follows its head
//              2   the same, with as many pages of content as its head says
//              3   a file: behind it the crc32 of what follows its name
namespace ferry::fuzz {
namespace {

using host::ImageReceiver;

constexpr std::uint64_t kLimit = 1 << 20;  // bytes: an input can ask for much more

class Folder {
 public:
  Folder() {
    char path[] = "/tmp/ferry-transfer-XXXXXX";
    require(::mkdtemp(path) != nullptr, "a folder can be made");
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

  // What was received, and that it lies where it may.
  std::uint64_t empty() const {
    std::uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      require(entry.is_regular_file() && !entry.is_symlink(), "only files are received");
      bytes += entry.file_size();
      std::filesystem::remove(entry.path());
    }
    return bytes;
  }

 private:
  std::string path_;
};

std::vector<std::byte> stream_of(Input input) {
  constexpr std::size_t kHead = 16;
  std::vector<std::byte> stream;
  wire::ByteWriter out(&stream);
  while (!input.empty()) {
    const unsigned op = input.byte() & 3;
    std::vector<std::byte> frame = input.bytes(input.number(2));
    std::size_t summed = kHead;
    if (op == 2 && frame.size() >= kHead) {
      const auto pages = std::to_integer<unsigned>(frame[12]);
      frame.resize(frame.size() + pages * precopy::kPage, std::byte{0x5A});
    }
    if (op == 3 && frame.size() >= kHead) summed += std::to_integer<unsigned>(frame[1]);
    stream.insert(stream.end(), frame.begin(), frame.end());
    if (op == 0 || frame.size() < summed) continue;
    out.put(~wire::crc32_update(wire::kCrc32Init, std::span(frame).subspan(summed)));
  }
  return stream;
}

void run(const std::vector<std::byte>& stream) {
  static const Folder folder;
  static ImageReceiver receiver("127.0.0.1", 0);
  precopy::PageStore memory(kLimit);
  const auto token = receiver.expect(folder.path(), kLimit, {}, &memory);
  const UniqueFd socket = connect_tcp("127.0.0.1", receiver.port());
  std::vector<std::byte> bytes;
  wire::ByteWriter out(&bytes);
  out.put(host::kImageMagic);
  out.put(host::kImageVersion);
  out.append(token.data(), token.size());
  bytes.insert(bytes.end(), stream.begin(), stream.end());
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t part =
        ::send(socket.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (part <= 0) break;  // it has had enough
    sent += static_cast<std::size_t>(part);
  }
  ::shutdown(socket.get(), SHUT_WR);
  bool whole = true;
  host::ImageTotals totals;
  try {
    totals = receiver.wait(token, 30'000);
  } catch (const Failure&) {
    whole = false;
  }
  receiver.cancel(token);
  const std::uint64_t received = folder.empty();
  require(received <= kLimit, "no more is taken than was allowed");
  require(!whole || received == totals.bytes, "a whole image has the bytes that it says");
}

}  // namespace
}  // namespace ferry::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ferry::fuzz::run(ferry::fuzz::stream_of({data, size}));
  return 0;
}
