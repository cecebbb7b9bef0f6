#include "host/image/image_stream.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "base/net.h"
#include "port/address_text.h"
#include "precopy/brake.h"
#include "wire/bytes.h"
#include "wire/crc32.h"

namespace ferry::host {
namespace {

constexpr std::size_t kPiece = 1 << 20;  // bytes summed and copied at a time: stays in the cache
constexpr int kIdleSeconds = 30;         // a peer that is silent for so long is gone
constexpr int kDumpSeconds = 600;        // for a sender to have something to send
// Most ranges of a frame. A process has 65,530 mappings by default.
constexpr std::size_t kMostRanges = 1 << 17;
constexpr char kRootfs[] = "root filesystem";

void set_timeouts(int socket, int seconds) {
  const timeval idle{seconds, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &idle, sizeof idle);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &idle, sizeof idle);
}

int receive_content(Stream& stream, int file, std::uint64_t size, std::uint32_t* crc,
                    std::vector<std::byte>& buffer) {
  *crc = wire::kCrc32Init;
  while (size > 0) {
    const std::size_t piece = std::min<std::uint64_t>(kPiece, size);
    if (const int error = stream.receive(buffer.data(), piece)) return error;
    *crc = wire::crc32_update(*crc, {buffer.data(), piece});
    for (std::size_t done = 0; done < piece;) {
      const ssize_t written = ::write(file, buffer.data() + done, piece - done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return errno;
      done += static_cast<std::size_t>(written);
    }
    size -= piece;
  }
  *crc = ~*crc;
  return 0;
}

// 0 or errno.
int receive_ranges(Stream& stream, std::uint32_t count, std::uint32_t* crc,
                   precopy::PageRanges* ranges) {
  if (count > kMostRanges) return EBADMSG;
  std::vector<std::byte> table(std::size_t{count} * 16);
  if (const int error = stream.receive(table.data(), table.size())) return error;
  *crc = wire::crc32_update(*crc, table);
  wire::ByteReader in(table);
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto start = in.get<std::uint64_t>(), end = in.get<std::uint64_t>();
    const bool is_range = start < end && end <= precopy::kAddressEnd &&
                          start % precopy::kPage == 0 && end % precopy::kPage == 0;
    if (!is_range) return EBADMSG;
    ranges->add(start, end);
  }
  return 0;
}

int receive_crc(Stream& stream, std::uint32_t crc) {
  std::uint32_t expected = 0;
  if (const int error = stream.receive(&expected, sizeof expected)) return error;
  return ~crc == expected ? 0 : EBADMSG;
}

// Of a frame of pages, or of what is kept.
struct MemoryHead {
  explicit MemoryHead(wire::ByteReader& head)
      : share(head.get<std::uint8_t>()),
        reserved(head.get<std::uint16_t>()),
        count(head.get<std::uint32_t>()),
        process(head.get<std::int32_t>()),
        pages(head.get<std::uint32_t>()) {}

  std::uint8_t share;
  std::uint16_t reserved;
  std::uint32_t count;
  std::int32_t process;
  std::uint32_t pages;
};

int receive_memory(Stream& stream, char tag, const MemoryHead& head, precopy::PageStore& memory) {
  const auto& [share, reserved, count, process, pages] = head;
  std::uint32_t crc = wire::kCrc32Init;
  precopy::PageRanges ranges;
  if (const int error = receive_ranges(stream, count, &crc, &ranges)) return error;
  if (tag == 'K') {
    if (const int error = receive_crc(stream, crc)) return error;
    memory.keep(process, ranges);
    return 0;
  }
  if (pages > ImageSender::kMostPages || ranges.bytes() != pages * precopy::kPage) return EBADMSG;
  try {
    for (const auto& [start, end] : ranges) {
      for (std::uint64_t at = start; at < end;) {
        const auto place = memory.put(process, at, end);
        if (const int error = stream.receive(place.data(), place.size())) return error;
        crc = wire::crc32_update(crc, place);
        at += place.size();
      }
    }
  } catch (const std::system_error& failure) {
    return failure.code().value();
  }
  return receive_crc(stream, crc);
}

// Takes a piece of a root filesystem, after its tag.
int receive_rootfs(Stream& stream, wire::ByteReader& head, RootfsHelper& rootfs,
                   std::vector<std::byte>& buffer) {
  head.take(3);
  const auto size = head.get<std::uint32_t>();
  if (size > ImageSender::kMostRootfs) return EBADMSG;
  if (const int error = stream.receive(buffer.data(), size)) return error;
  const std::span<const std::byte> piece(buffer.data(), size);
  if (const int error = receive_crc(stream, wire::crc32_update(wire::kCrc32Init, piece))) {
    return error;
  }
  return rootfs.unpack(piece);
}

int send_reply(Stream& stream, int error, std::uint64_t bytes,
               std::chrono::nanoseconds waited = {}) {
  std::vector<std::byte> reply;
  wire::ByteWriter out(&reply);
  out.put(static_cast<std::uint32_t>(error));
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(waited).count();
  out.put(static_cast<std::uint32_t>(std::min<std::int64_t>(microseconds, UINT32_MAX)));
  out.put(bytes);
  return stream.send(reply.data(), reply.size());
}

// Throws std::system_error when the connection has been shut.
void need_open(int socket) {
  pollfd shut{socket, 0, 0};
  if (::poll(&shut, 1, 0) > 0) throw std::system_error(ECONNRESET, std::generic_category());
}

// A share of a processor as a frame has it.
std::uint8_t to_byte(double share) {
  return static_cast<std::uint8_t>(std::clamp(std::ceil(share * 255), 1.0, 255.0));
}

std::vector<std::byte> file_head(char tag, const std::string& name, mode_t mode,
                                 std::uint64_t size) {
  std::vector<std::byte> head;
  wire::ByteWriter out(&head);
  out.put(tag);
  out.put(static_cast<std::uint8_t>(name.size()));
  out.put(static_cast<std::uint16_t>(mode & 07777));
  out.put(std::uint32_t{0});
  out.put(size);
  out.append(name.data(), name.size());
  return head;
}

bool is_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

std::vector<ImageFile> image_files(const std::string& directory) {
  std::vector<ImageFile> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.is_regular_file()) files.push_back({entry.path().filename(), entry.path()});
  }
  if (error) throw Failure(fmt::format("cannot read {}: {}", directory, error.message()));
  return files;
}

ImageSender::ImageSender(const std::string& address, std::uint16_t port, const ImageToken& token,
                         const Credentials* credentials, const std::string& host)
    : stream_(Stream::to_server(connect_tcp(address, port), credentials, host)) {
  set_timeouts(stream_.socket(), kIdleSeconds);
  end_after_silence(stream_.socket(), kHostSilence);
  std::vector<std::byte> head;
  wire::ByteWriter out(&head);
  out.put(kImageMagic);
  out.put(kImageVersion);
  out.append(token.data(), token.size());
  totals_.stream_bytes = head.size();
  if (const int error = stream_.send(head.data(), head.size())) {
    throw Failure(fmt::format("cannot begin the transfer of the image: {}", error_text(error)));
  }
}

// Sums and sends a file's content. 0 or errno.
int ImageSender::send_content(int file, std::uint64_t size, std::uint32_t* crc) {
  *crc = 0;  // of an empty file
  if (size == 0) return 0;
  void* map = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  if (map == MAP_FAILED) return errno;
  const auto* bytes = static_cast<const std::byte*>(map);
  std::uint32_t state = wire::kCrc32Init;
  int error = 0;
  for (std::uint64_t done = 0; done < size && error == 0;) {
    const std::size_t piece = std::min<std::uint64_t>(kPiece, size - done);
    state = wire::crc32_update(state, {bytes + done, piece});
    error = stream_.send(bytes + done, piece, true);
    done += piece;
  }
  ::munmap(map, size);
  *crc = ~state;
  return error;
}

ImageTotals ImageSender::send(const std::vector<ImageFile>& files) {
  const auto put = [&](const std::vector<std::byte>& bytes, bool more) {
    totals_.stream_bytes += bytes.size();
    return stream_.send(bytes.data(), bytes.size(), more);
  };
  int error = 0;
  std::vector<std::byte> bytes;
  wire::ByteWriter out(&bytes);
  for (const auto& file : files) {
    if (error != 0) break;
    const UniqueFd content(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    if (!content || ::fstat(content.get(), &status) != 0) {
      throw Failure(fmt::format("cannot read {}: {}", file.path, error_text(errno)));
    }
    const auto size = static_cast<std::uint64_t>(status.st_size);
    error = put(file_head('F', file.name, status.st_mode, size), true);
    std::uint32_t crc = 0;
    if (error == 0) error = send_content(content.get(), size, &crc);
    bytes.clear();
    out.put(crc);
    if (error == 0) error = put(bytes, true);
    totals_.files += 1;
    totals_.bytes += size;
    totals_.stream_bytes += size;
  }
  bytes.clear();
  out.put('E');
  out.append("\0\0\0\0\0\0\0", 7);
  out.put(totals_.files);
  out.put(totals_.bytes);
  if (error == 0) error = put(bytes, false);

  receive_reply(error, totals_.bytes);
  return totals_;
}

void ImageSender::send_rootfs(std::span<const std::byte> piece) {
  while (!piece.empty()) {
    const auto part = piece.first(std::min(piece.size(), kMostRootfs));
    piece = piece.subspan(part.size());
    std::vector<std::byte> head;
    wire::ByteWriter out(&head);
    out.put('T');
    out.append("\0\0\0", 3);
    out.put(static_cast<std::uint32_t>(part.size()));
    out.put(std::uint64_t{0});
    const std::uint32_t crc = ~wire::crc32_update(wire::kCrc32Init, part);
    totals_.stream_bytes += head.size() + part.size() + sizeof crc;
    int error = stream_.send(head.data(), head.size(), true);
    if (error == 0) error = stream_.send(part.data(), part.size(), true);
    if (error == 0) error = stream_.send(&crc, sizeof crc, false);
    if (error != 0) receive_reply(error, 0, kRootfs);
  }
}

void ImageSender::end_rootfs() {
  const std::array<char, 16> frame{'U'};
  totals_.stream_bytes += frame.size();
  receive_reply(stream_.send(frame.data(), frame.size()), 0, kRootfs);
}

void ImageSender::send_piece(const std::string& name, mode_t mode,
                             std::span<const std::byte> content) {
  const auto head = file_head('A', name, mode, content.size());
  const std::uint32_t crc = ~wire::crc32_update(wire::kCrc32Init, content);
  totals_.files += 1;
  totals_.bytes += content.size();
  totals_.stream_bytes += head.size() + content.size() + sizeof crc;
  int error = stream_.send(head.data(), head.size(), true);
  if (error == 0) error = stream_.send(content.data(), content.size(), true);
  if (error == 0) error = stream_.send(&crc, sizeof crc, false);
  if (error != 0) receive_reply(error, 0);
}

int ImageSender::send_ranges(char tag, std::int32_t process, const precopy::PageRanges& ranges,
                             std::span<const std::byte> content) {
  std::vector<std::byte> bytes;
  bytes.reserve(16 + 16 * ranges.count());
  wire::ByteWriter out(&bytes);
  out.put(tag);
  out.put(tag == 'P' ? share_ : std::uint8_t{0});
  out.put(std::uint16_t{0});
  out.put(static_cast<std::uint32_t>(ranges.count()));
  out.put(process);
  out.put(static_cast<std::uint32_t>(content.size() / precopy::kPage));
  const std::size_t head = bytes.size();
  for (const auto& [start, end] : ranges) {
    out.put(start);
    out.put(end);
  }
  std::uint32_t crc =
      wire::crc32_update(wire::kCrc32Init, {bytes.data() + head, bytes.size() - head});
  crc = ~wire::crc32_update(crc, content);
  totals_.stream_bytes += bytes.size() + content.size() + sizeof crc;
  int error = stream_.send(bytes.data(), bytes.size(), true);
  if (error == 0 && !content.empty()) error = stream_.send(content.data(), content.size(), true);
  if (error == 0) error = stream_.send(&crc, sizeof crc, true);
  return error;
}

void ImageSender::send_pages(std::int32_t process, const precopy::PageRanges& ranges,
                             std::span<const std::byte> content) {
  if (const int error = send_ranges('P', process, ranges, content)) receive_reply(error, 0);
}

void ImageSender::send_kept(std::int32_t process, const precopy::PageRanges& memory) {
  if (memory.count() > kMostRanges) return;  // the receiver keeps more than it needs
  if (const int error = send_ranges('K', process, memory, {})) receive_reply(error, 0);
}

void ImageSender::set_floor(double share) {
  share_ = to_byte(share);
}

std::chrono::nanoseconds ImageSender::end_round() {
  const std::array<char, 16> frame{'R'};
  totals_.stream_bytes += frame.size();
  return receive_reply(stream_.send(frame.data(), frame.size()), 0);
}

void ImageSender::tell_stop() {
  share_ = 0;
  const std::array<char, 16> frame{'S'};
  totals_.stream_bytes += frame.size();
  if (const int error = stream_.send(frame.data(), frame.size())) receive_reply(error, 0);
}

// `error`: that of sending; `expected`: the bytes of files that the receiver should have. Throws
// Failure unless all is well. Gives how long the receiver has waited.
std::chrono::microseconds ImageSender::receive_reply(int error, std::uint64_t expected,
                                                     const char* what) {
  // The receiver's own error says more than the broken connection that follows from it.
  std::vector<std::byte> reply(16);
  const int reply_error = stream_.receive(reply.data(), reply.size());
  wire::ByteReader in(reply);
  const int theirs = static_cast<int>(in.get<std::uint32_t>());
  const std::chrono::microseconds waited(in.get<std::uint32_t>());
  const auto received = in.get<std::uint64_t>();
  if (reply_error == 0 && theirs != 0) {
    throw Failure(
        fmt::format("the destination could not take the {}: {}", what, error_text(theirs)));
  }
  if (error == 0) error = reply_error;
  if (error == 0 && received != expected) error = EBADMSG;
  if (error != 0) {
    throw Failure(fmt::format("the transfer of the {} broke off: {}", what, error_text(error)));
  }
  return waited;
}

ImageReceiver::ImageReceiver(const std::string& address, std::uint16_t port,
                             const Credentials* credentials)
    : credentials_(credentials), listener_(listen_tcp(address, port)) {
  port_ = local_port(listener_.get());
  acceptor_ = std::thread([this] { accept_loop(); });
}

ImageReceiver::~ImageReceiver() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  ::shutdown(listener_.get(), SHUT_RDWR);
  for (auto& [token, transfer] : transfers_) {
    if (transfer.socket >= 0) ::shutdown(transfer.socket, SHUT_RDWR);
  }
  changed_.wait(lock, [this] { return serving_ == 0; });
  lock.unlock();
  acceptor_.join();
}

ImageToken ImageReceiver::expect(const std::string& directory, std::uint64_t limit,
                                 const std::string& host, precopy::PageStore* memory,
                                 RootfsHelper* rootfs) {
  ImageToken token;
  if (::getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    throw Failure("cannot get random bytes for a transfer");
  }
  std::lock_guard lock(mutex_);
  transfers_[token] = Transfer{directory, limit, host, memory, rootfs};
  return token;
}

ImageTotals ImageReceiver::wait(const ImageToken& token, int timeout_ms) {
  std::unique_lock lock(mutex_);
  const bool ended = changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] {
    const auto found = transfers_.find(token);
    return found == transfers_.end() || found->second.done;
  });
  const auto found = transfers_.find(token);
  if (found == transfers_.end()) throw Failure("the transfer of the image was cancelled");
  if (!ended) throw Failure("the transfer of the image does not end");
  if (found->second.error != 0) {
    throw Failure(
        fmt::format("the transfer of the image failed: {}", error_text(found->second.error)));
  }
  return found->second.totals;
}

void ImageReceiver::cancel(const ImageToken& token) {
  std::unique_lock lock(mutex_);
  const auto found = transfers_.find(token);
  if (found == transfers_.end()) return;
  if (found->second.socket >= 0) ::shutdown(found->second.socket, SHUT_RDWR);
  changed_.wait(lock, [&] { return found->second.socket < 0; });
  transfers_.erase(found);
  changed_.notify_all();
}

void ImageReceiver::accept_loop() {
  for (;;) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket && !pause_after_accept(errno)) return;
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    if (!socket) continue;
    const auto shared = std::make_shared<UniqueFd>(std::move(socket));
    ++serving_;
    try {
      std::thread([this, shared] {
        serve(std::move(*shared));
        std::lock_guard done(mutex_);
        --serving_;
        changed_.notify_all();
      }).detach();
    } catch (const std::system_error& error) {
      log::warn("cannot take an image: {}", error.what());
      --serving_;
    }
  }
}

// What comes on the stream of one transfer, behind its token.
class ImageReceiver::Reception {
 public:
  Reception(Stream& stream, const Transfer& transfer)
      : stream_(stream), transfer_(transfer), left_(transfer.limit) {}

  // Takes all of it. 0 or errno.
  int run();
  const ImageTotals& totals() const { return totals_; }

 private:
  // Each takes a frame, after its tag. 0 or errno.
  int receive_ahead(char tag, wire::ByteReader& head);
  int receive_pages(const MemoryHead& head);
  int receive_file(char tag, wire::ByteReader& head);
  int receive_end(wire::ByteReader& head);

  Stream& stream_;
  const Transfer& transfer_;
  ImageTotals totals_;
  std::uint64_t left_;  // of the limit
  bool has_stopped_ = false, in_archive_ = false;
  std::optional<precopy::Brake> brake_;  // while the program runs
  std::uint64_t untold_ = 0;             // bytes of the last frame of pages
  std::chrono::nanoseconds waited_{0};   // by the brake, before this round
  std::set<std::string> pieces_;         // files that come in pieces
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kPiece);
};

int ImageReceiver::Reception::run() {
  set_timeouts(stream_.socket(), kDumpSeconds);
  for (;;) {
    std::array<std::byte, 16> bytes;
    if (const int error = stream_.receive(bytes.data(), bytes.size())) return error;
    set_timeouts(stream_.socket(), kIdleSeconds);
    wire::ByteReader head(bytes);
    const auto tag = head.get<char>();
    if (tag == 'E') return receive_end(head);
    if (tag == 'F' || tag == 'A') {
      if (const int error = receive_file(tag, head)) return error;
    } else {
      if (const int error = receive_ahead(tag, head)) return error;
      set_timeouts(stream_.socket(), kDumpSeconds);
    }
  }
}

int ImageReceiver::Reception::receive_ahead(char tag, wire::ByteReader& head) {
  const bool is_rootfs = tag == 'T' || tag == 'U';
  const bool is_wanted = is_rootfs ? transfer_.rootfs != nullptr : transfer_.memory != nullptr;
  if (!is_wanted || totals_.files > 0) return EBADMSG;
  switch (tag) {
    case 'T': in_archive_ = true; return receive_rootfs(stream_, head, *transfer_.rootfs, buffer_);
    case 'U': {
      in_archive_ = false;
      const int error = transfer_.rootfs->end_archive();
      return error != 0 ? error : send_reply(stream_, 0, 0);
    }
    case 'P': return receive_pages(MemoryHead(head));
    case 'K': return receive_memory(stream_, tag, MemoryHead(head), *transfer_.memory);
    case 'R': {
      const auto waited = brake_ ? brake_->waited() : waited_;
      return send_reply(stream_, 0, 0, waited - std::exchange(waited_, waited));
    }
    case 'S':
      has_stopped_ = true;
      brake_.reset();
      return 0;
    default: return EBADMSG;
  }
}

int ImageReceiver::Reception::receive_pages(const MemoryHead& head) {
  if (!has_stopped_) {
    // A sender that says nothing does not know of shares. One that does tells when it grows.
    const double share = head.share > 0 ? head.share / 255.0 : 1;
    if (!brake_) brake_.emplace(precopy::PaceSettings{share, std::chrono::nanoseconds::max(), 0});
    brake_->pace().set_floor(share);
    try {
      brake_->after(std::exchange(untold_, std::uint64_t{head.pages} * precopy::kPage),
                    [this] { need_open(stream_.socket()); });
    } catch (const std::system_error& failure) {
      return failure.code().value();
    }
  }
  return receive_memory(stream_, 'P', head, *transfer_.memory);
}

int ImageReceiver::Reception::receive_file(char tag, wire::ByteReader& head) {
  std::string name(head.get<std::uint8_t>(), '\0');
  const auto mode = head.get<std::uint16_t>();
  head.get<std::uint32_t>();
  const auto size = head.get<std::uint64_t>();
  if (const int error = stream_.receive(name.data(), name.size())) return error;
  if (!is_file_name(name)) return EBADMSG;
  const std::uint64_t ahead_bytes = transfer_.memory != nullptr ? transfer_.memory->bytes() : 0;
  if (size > left_ || ahead_bytes > left_ - size) return ENOMEM;
  left_ -= size;
  const std::string path = transfer_.directory + "/" + name;
  // Pieces are only ever added to a file that has come in pieces, or to a new one.
  const int how = tag == 'A' && pieces_.contains(name) ? O_APPEND : O_CREAT | O_EXCL;
  if (tag == 'A') pieces_.insert(name);
  const UniqueFd file(::open(path.c_str(), O_WRONLY | how | O_NOFOLLOW | O_CLOEXEC, 0600));
  // CRIU wants a log to have the mode that it had; the folder is root's alone.
  if (!file || ::fchmod(file.get(), mode & 0777) != 0) return errno;
  std::uint32_t crc = 0, expected = 0;
  if (const int error = receive_content(stream_, file.get(), size, &crc, buffer_)) return error;
  if (const int error = stream_.receive(&expected, sizeof expected)) return error;
  if (crc != expected) return EBADMSG;
  totals_.files += 1;
  totals_.bytes += size;
  return 0;
}

int ImageReceiver::Reception::receive_end(wire::ByteReader& head) {
  head.take(7);
  std::uint64_t bytes = 0;
  if (const int error = stream_.receive(&bytes, sizeof bytes)) return error;
  if (in_archive_) return EBADMSG;
  const bool is_complete = head.get<std::uint64_t>() == totals_.files && bytes == totals_.bytes;
  return is_complete ? 0 : EBADMSG;
}

void ImageReceiver::serve(UniqueFd socket) {
  set_timeouts(socket.get(), kIdleSeconds);
  const std::string address = port::remote_address(socket.get());
  std::optional<Stream> stream;
  try {
    stream = Stream::to_client(std::move(socket), credentials_);
  } catch (const Failure& failure) {
    log::warn("refused {}, which would send an image: {}", address, failure.what());
    return;
  }
  std::vector<std::byte> head(24);
  if (stream->receive(head.data(), head.size()) != 0) return;
  wire::ByteReader in(head);
  const auto magic = in.get<std::uint32_t>();
  const auto version = in.get<std::uint32_t>();
  ImageToken token;
  in.read(token.data(), token.size());
  Transfer transfer;
  {
    std::lock_guard lock(mutex_);
    const auto found = transfers_.find(token);
    if (magic != kImageMagic || version != kImageVersion || found == transfers_.end() ||
        found->second.busy || found->second.host != stream->peer() || stopping_) {
      log::warn("refused {}, which would send an image that nobody expects from it", address);
      return;
    }
    found->second.busy = true;
    found->second.socket = stream->socket();
    transfer = found->second;
  }
  Reception reception(*stream, transfer);
  const int error = reception.run();
  ImageTotals totals = reception.totals();
  totals.stream_bytes = stream->received();
  {
    std::lock_guard lock(mutex_);
    Transfer& entry = transfers_.at(token);
    entry.socket = -1;
    entry.done = true;
    entry.error = error;
    entry.totals = totals;
    changed_.notify_all();
  }
  send_reply(*stream, error, totals.bytes);
  ::shutdown(stream->socket(), SHUT_WR);
  // Unread bytes would turn the close into a reset, and the sender would lose the reply.
  std::vector<std::byte> rest(kPiece);
  while (::recv(stream->socket(), rest.data(), rest.size(), 0) > 0) continue;
}

}  // namespace ferry::host
