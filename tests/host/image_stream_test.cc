#include "host/image/image_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>

#include "base/net.h"
#include "temporary.h"
#include "wire/bytes.h"
#include "wire/crc32.h"

namespace ferry::host {
namespace {

using test::failure_of;
using test::Folder;

constexpr std::uint64_t kNoLimit = 1ull << 40;

std::string random_bytes(std::size_t size) {
  std::mt19937_64 generator(size);
  std::string bytes(size, '\0');
  for (auto& byte : bytes) byte = static_cast<char>(generator());
  return bytes;
}

struct ImageStream : testing::Test {
  Folder source, destination;
  ImageReceiver receiver{"127.0.0.1", 0};

  ImageTotals send(const ImageToken& token) {
    return ImageSender("127.0.0.1", receiver.port(), token).send(image_files(source.path()));
  }
};

TEST_F(ImageStream, CarriesEveryFile) {
  source.write("empty", "");
  source.write("small", "x");
  source.write("piece", random_bytes(1 << 20));
  source.write("pages-1.img", random_bytes((5 << 20) + 123));
  const auto token = receiver.expect(destination.path(), kNoLimit);
  const auto sent = send(token);
  const auto received = receiver.wait(token, 1000);
  EXPECT_EQ(sent.files, 4u);
  EXPECT_EQ(received.files, 4u);
  EXPECT_EQ(sent.bytes, 1u + (1 << 20) + (5 << 20) + 123);
  EXPECT_EQ(received.bytes, sent.bytes);
  EXPECT_GT(sent.stream_bytes, sent.bytes);
  EXPECT_LT(sent.stream_bytes, sent.bytes + 400);
  for (const char* name : {"empty", "small", "piece", "pages-1.img"}) {
    ASSERT_TRUE(std::filesystem::exists(destination.path(name))) << name;
    EXPECT_EQ(destination.read(name), source.read(name)) << name;
  }
}

TEST_F(ImageStream, AFileMayComeInPieces) {
  const std::string first = random_bytes(1 << 20), second = random_bytes(77);
  const auto token = receiver.expect(destination.path(), kNoLimit);
  ImageSender sender("127.0.0.1", receiver.port(), token);
  sender.send_piece("archive", 0640, std::as_bytes(std::span(first)));
  sender.send_piece("archive", 0640, std::as_bytes(std::span(second)));
  EXPECT_EQ(sender.send({}).bytes, first.size() + second.size());
  EXPECT_EQ(receiver.wait(token, 1000).bytes, first.size() + second.size());
  EXPECT_EQ(destination.read("archive"), first + second);
}

TEST_F(ImageStream, RefusesMoreThanTheLimit) {
  source.write("big", random_bytes(3 << 20));
  const auto token = receiver.expect(destination.path(), 2 << 20);
  EXPECT_NE(failure_of([&] { send(token); }).find("Cannot allocate memory"), std::string::npos);
  EXPECT_NE(failure_of([&] { receiver.wait(token, 1000); }), "");
}

TEST_F(ImageStream, NeedsTheToken) {
  source.write("file", "secret");
  receiver.expect(destination.path(), kNoLimit);
  EXPECT_NE(failure_of([&] { send(ImageToken{}); }), "");
  EXPECT_TRUE(image_files(destination.path()).empty());
}

TEST_F(ImageStream, ATokenServesOnce) {
  source.write("file", "x");
  const auto token = receiver.expect(destination.path(), kNoLimit);
  send(token);
  EXPECT_NE(failure_of([&] { send(token); }), "");
}

TEST_F(ImageStream, WaitEndsWhenCancelled) {
  const auto token = receiver.expect(destination.path(), kNoLimit);
  EXPECT_NE(failure_of([&] { receiver.wait(token, 20); }).find("does not end"), std::string::npos);
  std::thread canceller([&] { receiver.cancel(token); });
  EXPECT_NE(failure_of([&] { receiver.wait(token, 5000); }).find("cancelled"), std::string::npos);
  canceller.join();
}

// Streams written by hand: what a sender of ours never sends.
constexpr std::uint64_t kHere = 0x7f0000000000;

precopy::PageRanges pages(std::initializer_list<std::uint64_t> numbers) {
  precopy::PageRanges ranges;
  for (const auto page : numbers) {
    ranges.add(kHere + page * precopy::kPage, kHere + (page + 1) * precopy::kPage);
  }
  return ranges;
}

TEST_F(ImageStream, CarriesMemoryAheadInRounds) {
  precopy::PageStore memory(1 << 20);
  source.write("file", "x");
  const auto token = receiver.expect(destination.path(), kNoLimit, {}, &memory);
  ImageSender sender("127.0.0.1", receiver.port(), token);
  const std::string first = random_bytes(3 * precopy::kPage), second = random_bytes(precopy::kPage);
  sender.send_pages(7, pages({0, 1, 9}), std::as_bytes(std::span(first)));
  sender.send_kept(7, pages({0, 9}));
  sender.end_round();
  EXPECT_EQ(memory.bytes(), 2 * precopy::kPage);
  sender.tell_stop();
  sender.send_pages(7, pages({0}), std::as_bytes(std::span(second)));
  sender.send(image_files(source.path()));
  EXPECT_EQ(receiver.wait(token, 1000).files, 1u);
  const auto content = [&](std::uint64_t page) {
    const auto at = kHere + page * precopy::kPage;
    const auto bytes = memory.get(7, at, at + precopy::kPage);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  EXPECT_EQ(content(0), second);
  EXPECT_EQ(content(9), first.substr(2 * precopy::kPage));
  EXPECT_FALSE(memory.has(7, kHere + precopy::kPage, kHere + 2 * precopy::kPage));
}

TEST_F(ImageStream, TheReceiverSlowsDownAsTheSenderWantsAndTells) {
  precopy::PageStore memory(2 * precopy::PageSink::kMostPages * precopy::kPage);
  const auto token = receiver.expect(destination.path(), kNoLimit, {}, &memory);
  ImageSender sender("127.0.0.1", receiver.port(), token);
  precopy::PageRanges frame;
  frame.add(kHere, kHere + precopy::PageSink::kMostPages * precopy::kPage);
  const std::string content = random_bytes(frame.bytes());
  const auto send_frames = [&] {
    for (int i = 0; i < 4; ++i) sender.send_pages(7, frame, std::as_bytes(std::span(content)));
    return sender.end_round();
  };
  sender.set_floor(0.004);
  EXPECT_GT(send_frames(), std::chrono::nanoseconds(0));
  sender.tell_stop();
  EXPECT_EQ(send_frames(), std::chrono::nanoseconds(0));
}

TEST_F(ImageStream, MoreMemoryThanTheLimitEndsTheRound) {
  precopy::PageStore memory(2 * precopy::kPage);
  const auto token = receiver.expect(destination.path(), kNoLimit, {}, &memory);
  ImageSender sender("127.0.0.1", receiver.port(), token);
  const std::string content = random_bytes(3 * precopy::kPage);
  const auto failure = failure_of([&] {
    sender.send_pages(7, pages({0, 1, 2}), std::as_bytes(std::span(content)));
    sender.end_round();
  });
  EXPECT_NE(failure.find("Cannot allocate memory"), std::string::npos) << failure;
}

TEST_F(ImageStream, MemoryAndFilesShareTheLimit) {
  precopy::PageStore memory(4 * precopy::kPage);
  source.write("file", random_bytes(3 * precopy::kPage));
  const auto token = receiver.expect(destination.path(), 4 * precopy::kPage, {}, &memory);
  ImageSender sender("127.0.0.1", receiver.port(), token);
  const std::string content = random_bytes(2 * precopy::kPage);
  sender.send_pages(7, pages({0, 1}), std::as_bytes(std::span(content)));
  const auto failure = failure_of([&] { sender.send(image_files(source.path())); });
  EXPECT_NE(failure.find("Cannot allocate memory"), std::string::npos) << failure;
}

RootfsHelper rootfs_helper(RootfsHelper::Task task, const Folder& folder) {
  return {std::filesystem::read_symlink("/proc/self/exe").parent_path() / "ferry-rootfs", task,
          folder.path(), "/dev/null"};
}

TEST_F(ImageStream, CarriesARootFilesystemAhead) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  Folder here, there;
  here.write("large", random_bytes(1 << 20));
  source.write("file", "x");
  auto packer = rootfs_helper(RootfsHelper::Task::kPack, here);
  auto unpacker = rootfs_helper(RootfsHelper::Task::kUnpack, there);
  const auto token = receiver.expect(destination.path(), kNoLimit, {}, nullptr, &unpacker);
  ImageSender sender("127.0.0.1", receiver.port(), token);
  for (const char* text : {"first", "and again"}) {
    here.write("small", text);
    packer.pack({}, [&](std::span<const std::byte> piece) { sender.send_rootfs(piece); });
    sender.end_rootfs();
    EXPECT_EQ(there.read("small"), text);
  }
  sender.send(image_files(source.path()));
  EXPECT_EQ(receiver.wait(token, 1000).files, 1u);
  EXPECT_EQ(there.read("large"), here.read("large"));
}

struct BadStream : ImageStream {
  static std::vector<std::byte> rootfs_frame(std::uint32_t size, std::size_t content,
                                             std::uint32_t wrong_crc = 0) {
    std::vector<std::byte> bytes;
    wire::ByteWriter out(&bytes);
    out.put('T');
    out.append("\0\0\0", 3);
    out.put(size);
    out.put(std::uint64_t{0});
    bytes.resize(bytes.size() + content);
    out.put(wrong_crc ^ ~wire::crc32_update(wire::kCrc32Init, std::span(bytes).subspan(16)));
    return bytes;
  }
  static std::vector<std::byte> memory_frame(char tag, std::uint32_t pages_told,
                                             std::uint64_t start, std::uint64_t end,
                                             std::size_t content, std::uint32_t wrong_crc = 0) {
    std::vector<std::byte> bytes;
    wire::ByteWriter out(&bytes);
    out.put(tag);
    out.append("\0\0\0", 3);
    out.put(std::uint32_t{1});
    out.put(std::uint32_t{7});
    out.put(pages_told);
    out.put(start);
    out.put(end);
    bytes.resize(bytes.size() + content);
    out.put(wrong_crc ^ ~wire::crc32_update(wire::kCrc32Init, std::span(bytes).subspan(16)));
    return bytes;
  }
  // The errno that the receiver answers, -1 for none.
  int answer_to(const std::vector<std::byte>& files, precopy::PageStore* memory = nullptr,
                RootfsHelper* rootfs = nullptr) {
    const auto token = receiver.expect(destination.path(), kNoLimit, {}, memory, rootfs);
    std::vector<std::byte> bytes;
    wire::ByteWriter out(&bytes);
    out.put(std::uint32_t{0x474D4946});
    out.put(std::uint32_t{4});
    out.append(token.data(), token.size());
    out.append(files.data(), files.size());
    const UniqueFd socket = connect_tcp("127.0.0.1", receiver.port());
    EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    ::shutdown(socket.get(), SHUT_WR);
    std::uint32_t error = 0;
    return ::recv(socket.get(), &error, sizeof error, MSG_WAITALL) == sizeof error
               ? static_cast<int>(error)
               : -1;
  }
  static std::vector<std::byte> file(const std::string& name, const std::string& content,
                                     std::uint32_t wrong_crc = 0, char tag = 'F') {
    std::vector<std::byte> bytes;
    wire::ByteWriter out(&bytes);
    out.put(tag);
    out.put(static_cast<std::uint8_t>(name.size()));
    out.put(std::uint16_t{0600});
    out.put(std::uint32_t{0});
    out.put(std::uint64_t{content.size()});
    out.append(name.data(), name.size());
    out.append(content.data(), content.size());
    out.put(wrong_crc ^ ~wire::crc32_update(wire::kCrc32Init, std::as_bytes(std::span(content))));
    return bytes;
  }
  static std::vector<std::byte> end(std::uint64_t files, std::uint64_t bytes_total) {
    std::vector<std::byte> bytes;
    wire::ByteWriter out(&bytes);
    out.put('E');
    out.append("\0\0\0\0\0\0\0", 7);
    out.put(files);
    out.put(bytes_total);
    return bytes;
  }
  static std::vector<std::byte> join(std::vector<std::byte> a, const std::vector<std::byte>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
};

TEST_F(BadStream, TheLayoutIsTheDocumentedOne) {
  EXPECT_EQ(answer_to(join(file("name", "content"), end(1, 7))), 0);
  EXPECT_EQ(destination.read("name"), "content");
}

TEST_F(BadStream, NamesStayInTheFolder) {
  const std::filesystem::path beside = destination.path() + ".beside";
  for (const std::string& name :
       {"../" + beside.filename().string(), beside.string(), std::string(".."), std::string("."),
        std::string(""), std::string("a\0b", 3)}) {
    EXPECT_EQ(answer_to(join(file(name, "x"), end(1, 1))), EBADMSG) << name;
  }
  EXPECT_FALSE(std::filesystem::exists(beside));
}

TEST_F(BadStream, AFileIsNotReplaced) {
  destination.write("there", "old");
  EXPECT_EQ(answer_to(join(file("there", "new"), end(1, 3))), EEXIST);
  EXPECT_EQ(destination.read("there"), "old");
}

TEST_F(BadStream, PiecesAreAddedToWhatCameInPiecesOnly) {
  const auto piece = [](const std::string& name, const std::string& content,
                        std::uint32_t wrong_crc = 0) {
    return file(name, content, wrong_crc, 'A');
  };
  EXPECT_EQ(answer_to(join(join(piece("a", "on"), piece("a", "e")), end(2, 3))), 0);
  EXPECT_EQ(destination.read("a"), "one");
  EXPECT_EQ(answer_to(join(piece("a", "two"), end(1, 3))), EEXIST);
  EXPECT_EQ(answer_to(join(join(file("b", "x"), piece("b", "y")), end(2, 2))), EEXIST);
  EXPECT_EQ(answer_to(join(join(piece("c", "x"), piece("c", "y", 1)), end(2, 2))), EBADMSG);
  EXPECT_EQ(answer_to(join(piece("../d", "x"), end(1, 1))), EBADMSG);
  EXPECT_EQ(destination.read("a"), "one");
  EXPECT_EQ(destination.read("b"), "x");
}

TEST_F(BadStream, MemoryThatIsNotAsDocumentedIsRefused) {
  using precopy::kPage;
  precopy::PageStore memory(1 << 24);
  const auto end_of_all = end(0, 0);
  const auto answer = [&](const std::vector<std::byte>& frame) {
    return answer_to(join(frame, end_of_all), &memory);
  };
  EXPECT_EQ(answer(memory_frame('P', 1, kHere, kHere + kPage, kPage)), 0);
  EXPECT_EQ(answer(memory_frame('P', 1, kHere, kHere + kPage, kPage, 1)), EBADMSG);
  EXPECT_EQ(answer(memory_frame('P', 2, kHere, kHere + kPage, kPage)), EBADMSG);
  EXPECT_EQ(answer(memory_frame('P', 1, kHere + 1, kHere + 1 + kPage, kPage)), EBADMSG);
  EXPECT_EQ(answer(memory_frame('P', 257, kHere, kHere + 257 * kPage, 257 * kPage)), EBADMSG);
  EXPECT_EQ(answer(memory_frame('P', 1, ~0ull - kPage + 1, 0, kPage)), EBADMSG);
  EXPECT_EQ(answer(memory_frame('K', 0, kHere, kHere + kPage, 0, 1)), EBADMSG);
  // Where nobody expects any, there is none.
  EXPECT_EQ(answer_to(join(memory_frame('P', 1, kHere, kHere + kPage, kPage), end_of_all)),
            EBADMSG);
}

TEST_F(BadStream, ARootFilesystemThatIsNotAsDocumentedIsRefused) {
  EXPECT_EQ(answer_to(join(rootfs_frame(100, 100), end(0, 0))), EBADMSG);  // nobody expects any
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto answer = [&](const std::vector<std::byte>& frame) {
    Folder folder;
    auto unpacker = rootfs_helper(RootfsHelper::Task::kUnpack, folder);
    return answer_to(join(frame, end(0, 0)), nullptr, &unpacker);
  };
  EXPECT_EQ(answer({}), 0);
  EXPECT_EQ(answer(rootfs_frame(100, 100)), EBADMSG);  // it does not end
  EXPECT_EQ(answer(rootfs_frame(100, 100, 1)), EBADMSG);
  const auto most = static_cast<std::uint32_t>(ImageSender::kMostRootfs);
  EXPECT_EQ(answer(rootfs_frame(most + 1, most + 1)), EBADMSG);
  std::vector<std::byte> whole(16, std::byte{0});
  whole[0] = std::byte{'U'};
  EXPECT_EQ(answer(join(file("before", "x"), whole)), EBADMSG);
}

TEST_F(BadStream, DamageAndContradictionsAreSeen) {
  EXPECT_EQ(answer_to(join(file("a", "x", 1), end(1, 1))), EBADMSG);
  EXPECT_EQ(answer_to(join(file("b", "x"), end(2, 1))), EBADMSG);
  EXPECT_EQ(answer_to(join(file("c", "x"), end(1, 2))), EBADMSG);
  EXPECT_EQ(answer_to(file("d", "x")), EPIPE);
  std::vector<std::byte> unknown(16, std::byte{'?'});
  EXPECT_EQ(answer_to(unknown), EBADMSG);
}

}  // namespace
}  // namespace ferry::host
