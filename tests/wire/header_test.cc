#include "wire/header.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "hex.h"

namespace ferry::wire {
namespace {

// Code, bytes before the payload, whether it is a request, whether it may have a payload. Written
// down from the specification's table, not from the code's.
struct Row {
  int opcode;
  std::size_t header;
  bool request, payload;
};
constexpr Row kTable[] = {
    // RC
    {0x00, 12, true, true},
    {0x01, 12, true, true},
    {0x02, 12, true, true},
    {0x03, 16, true, true},
    {0x04, 12, true, true},
    {0x05, 16, true, true},
    {0x06, 28, true, true},
    {0x07, 12, true, true},
    {0x08, 12, true, true},
    {0x09, 16, true, true},
    {0x0A, 28, true, true},
    {0x0B, 32, true, true},
    {0x0C, 28, true, false},
    {0x0D, 16, false, true},
    {0x0E, 12, false, true},
    {0x0F, 16, false, true},
    {0x10, 16, false, true},
    {0x11, 16, false, false},
    {0x12, 24, false, false},
    {0x13, 40, true, false},
    {0x14, 40, true, false},
    {0x16, 16, true, true},
    {0x17, 16, true, true},
    {0x1C, 32, true, false},
    {0x1D, 28, true, true},
    // UC
    {0x20, 12, true, true},
    {0x21, 12, true, true},
    {0x22, 12, true, true},
    {0x23, 16, true, true},
    {0x24, 12, true, true},
    {0x25, 16, true, true},
    {0x26, 28, true, true},
    {0x27, 12, true, true},
    {0x28, 12, true, true},
    {0x29, 16, true, true},
    {0x2A, 28, true, true},
    {0x2B, 32, true, true},
    // UD
    {0x64, 20, true, true},
    {0x65, 24, true, true},
    // UD of a QP that has moved
    {0xC4, 44, true, true},
    {0xC5, 48, true, true},
    // Congestion notification
    {0x81, 12, false, true},
    // XRC
    {0xA0, 16, true, true},
    {0xA1, 16, true, true},
    {0xA2, 16, true, true},
    {0xA3, 20, true, true},
    {0xA4, 16, true, true},
    {0xA5, 20, true, true},
    {0xA6, 32, true, true},
    {0xA7, 16, true, true},
    {0xA8, 16, true, true},
    {0xA9, 20, true, true},
    {0xAA, 32, true, true},
    {0xAB, 36, true, true},
    {0xAC, 32, true, false},
    {0xAD, 16, false, true},
    {0xAE, 12, false, true},
    {0xAF, 16, false, true},
    {0xB0, 16, false, true},
    {0xB1, 16, false, false},
    {0xB2, 24, false, false},
    {0xB3, 44, true, false},
    {0xB4, 44, true, false},
    {0xB6, 20, true, true},
    {0xB7, 20, true, true},
    {0xBC, 36, true, false},
    {0xBD, 32, true, true},
    // Migration
    {0xC0, 12, false, true},
    {0xC1, 12, false, true},
};

std::vector<std::byte> encode(const Header& header, std::span<const std::byte> payload = {}) {
  std::vector<std::byte> packet(packet_size(header.opcode, payload.size()), std::byte{0xEE});
  encode_header(header, payload.size(), packet);
  if (!payload.empty()) {
    std::memcpy(packet.data() + header_size(header.opcode), payload.data(), payload.size());
  }
  // Not the ICRC's test: a mark that nothing else wrote there.
  std::memset(packet.data() + packet.size() - kIcrcSize, 0xCC, kIcrcSize);
  return packet;
}

TEST(Header, SendOnlyByteForByte) {
  Header header;
  header.opcode = Opcode::kRcSendOnly;
  header.solicited = true;
  header.ack_request = true;
  header.dest_qpn = 0x123456;
  header.psn = 0xABCDEF;
  const auto payload = from_hex("01 02 03 04 05");
  EXPECT_EQ(encode(header, payload), from_hex("04 f0 ffff"  // SE, MigReq, pad 3
                                              "00 123456"   // reserved, destination QPN
                                              "80 abcdef"   // AckReq, PSN
                                              "0102030405"  // payload
                                              "000000"      // pad
                                              "cccccccc"));
}

TEST(Header, WriteOnlyWithImmediateByteForByte) {
  Header header;
  header.opcode = Opcode::kRcWriteOnlyImm;
  header.pkey = 0x8001;
  header.dest_qpn = 0x00000A;
  header.psn = 1;
  header.reth = {0x1122334455667788, 0x99AABBCC, 0x00000004};
  const auto immediate = from_hex("deadbeef");
  std::memcpy(&header.immediate, immediate.data(), 4);
  EXPECT_EQ(encode(header, from_hex("61626364")), from_hex("0b 40 8001"
                                                           "00 00000a"
                                                           "00 000001"
                                                           "1122334455667788"
                                                           "99aabbcc"
                                                           "00000004"
                                                           "deadbeef"
                                                           "61626364"
                                                           "cccccccc"));
}

TEST(Header, ReadRequestByteForByte) {
  Header header;
  header.opcode = Opcode::kRcReadRequest;
  header.ack_request = true;
  header.dest_qpn = 0xFFFFFE;
  header.psn = 0xFFFFFF;
  header.reth = {0x7F0000001000, 0x01020304, 0x80000000};
  EXPECT_EQ(encode(header), from_hex("0c 40 ffff  00 fffffe  80 ffffff"
                                     "00007f0000001000 01020304 80000000"
                                     "cccccccc"));
}

TEST(Header, AcknowledgeByteForByte) {
  Header header;
  header.opcode = Opcode::kRcAck;
  header.dest_qpn = 0x11;
  header.psn = 0x2A;
  header.aeth = {syndrome::kAck | syndrome::kNoCredits, 0x000102};
  EXPECT_EQ(encode(header), from_hex("11 40 ffff  00 000011  00 00002a  1f 000102  cccccccc"));
  header.aeth.syndrome = syndrome::kRnrNak | 0x0E;
  EXPECT_EQ(encode(header), from_hex("11 40 ffff  00 000011  00 00002a  2e 000102  cccccccc"));
}

TEST(Header, AtomicsByteForByte) {
  Header header;
  header.opcode = Opcode::kRcCompareSwap;
  header.ack_request = true;
  header.dest_qpn = 0x11;
  header.psn = 0x2A;
  header.atomic = {0x1122334455667788, 0x99AABBCC, 0x0102030405060708, 0xF1F2F3F4F5F6F7F8};
  EXPECT_EQ(encode(header), from_hex("13 40 ffff  00 000011  80 00002a"
                                     "1122334455667788 99aabbcc 0102030405060708 f1f2f3f4f5f6f7f8"
                                     "cccccccc"));
  header.opcode = Opcode::kRcAtomicAck;
  header.ack_request = false;
  header.aeth = {syndrome::kNoCredits, 7};
  header.original = 0xA1A2A3A4A5A6A7A8;
  EXPECT_EQ(encode(header), from_hex("12 40 ffff  00 000011  00 00002a"
                                     "1f 000007  a1a2a3a4a5a6a7a8  cccccccc"));
}

TEST(Header, SendWithInvalidateByteForByte) {
  Header header;
  header.opcode = Opcode::kRcSendOnlyInvalidate;
  header.dest_qpn = 0x11;
  header.psn = 1;
  header.invalidate_rkey = 0x01020304;
  EXPECT_EQ(encode(header, from_hex("aabbccdd")),
            from_hex("17 40 ffff  00 000011  00 000001  01020304  aabbccdd  cccccccc"));
}

TEST(Header, FlushAndAtomicWriteByteForByte) {
  Header header;
  header.opcode = Opcode::kRcFlush;
  header.dest_qpn = 0x11;
  header.psn = 1;
  header.feth = {Feth::kGlobalVisibility | Feth::kPersistence, Feth::kWholeRegion};
  header.reth = {0x1000, 0x02030405, 0x2000};
  EXPECT_EQ(encode(header), from_hex("1c 40 ffff  00 000011  00 000001  00000013"
                                     "0000000000001000 02030405 00002000  cccccccc"));
  header.opcode = Opcode::kRcAtomicWrite;
  header.reth.dma_length = 8;
  EXPECT_EQ(encode(header, from_hex("0102030405060708")),
            from_hex("1d 40 ffff  00 000011  00 000001"
                     "0000000000001000 02030405 00000008  0102030405060708  cccccccc"));
}

TEST(Header, DatagramByteForByte) {
  Header header;
  header.opcode = Opcode::kUdSendOnlyImm;
  header.dest_qpn = 0xFFFFFF;
  header.psn = 1;
  header.deth = {0x80010000, 0x445566};
  const auto immediate = from_hex("deadbeef");
  std::memcpy(&header.immediate, immediate.data(), 4);
  EXPECT_EQ(encode(header, from_hex("61626364")), from_hex("65 40 ffff  00 ffffff  00 000001"
                                                           "80010000  00 445566"
                                                           "deadbeef  61626364  cccccccc"));
}

// UD of a QP that has moved: DETH, then OriginETH = gid:128 rsvd:8 qpn:24 epoch:32.
TEST(Header, OriginByteForByte) {
  Header header;
  header.opcode = Opcode::kMovedSendOnly;
  header.dest_qpn = 0x04002A;
  header.psn = 0x000102;
  header.deth = {0x11223344, 0x08000B};
  const auto gid = from_hex("20010db8 00000000 01234567 89abcdef");
  std::memcpy(header.origin.gid.bytes.data(), gid.data(), 16);
  header.origin.qpn = 0xFF00000B;  // 24 bits of it
  header.origin.epoch = 0xA1B2C3D4;
  const auto bytes = from_hex(
      "c4 40 ffff  00 04002a  00 000102  11223344  00 08000b"
      "20010db8000000000123456789abcdef  00 00000b  a1b2c3d4"
      "61626364  cccccccc");
  EXPECT_EQ(encode(header, from_hex("61626364")), bytes);
  const auto packet = parse(bytes);
  ASSERT_TRUE(packet);
  EXPECT_EQ(std::memcmp(packet->header.origin.gid.bytes.data(), gid.data(), 16), 0);
  EXPECT_EQ(packet->header.origin.qpn, 0x00000Bu);
  EXPECT_EQ(packet->header.origin.epoch, 0xA1B2C3D4u);
  EXPECT_EQ(packet->header.deth.source_qpn, 0x08000Bu);
  EXPECT_EQ(packet->payload.size(), 4u);
  for (std::size_t size = 0; size < 12 + 8 + 24 + 4; ++size) {
    EXPECT_FALSE(parse(std::span(bytes).first(size))) << size;
  }

  header.opcode = Opcode::kMovedSendOnlyImm;
  const auto immediate = from_hex("deadbeef");
  std::memcpy(&header.immediate, immediate.data(), 4);
  EXPECT_EQ(encode(header), from_hex("c5 40 ffff  00 04002a  00 000102  11223344  00 08000b"
                                     "20010db8000000000123456789abcdef  00 00000b  a1b2c3d4"
                                     "deadbeef  cccccccc"));
}

TEST(Header, OfXrcNamesTheSrqFirst) {
  Header header;
  header.opcode = in_service(Service::kXrc, Opcode::kRcWriteOnlyImm);
  header.dest_qpn = 0x11;
  header.psn = 1;
  header.xrc_srqn = 0x778899;
  header.reth = {0x1000, 0x02030405, 4};
  EXPECT_EQ(encode(header, from_hex("61626364")),
            from_hex("ab 40 ffff  00 000011  00 000001  00 778899"
                     "0000000000001000 02030405 00000004  00000000  61626364  cccccccc"));
}

TEST(Header, SizesFollowTheOpcodeTable) {
  std::size_t known = 0;
  for (int code = 0; code < 256; ++code) known += is_known(static_cast<Opcode>(code));
  EXPECT_EQ(known, std::size(kTable));
  for (const Row& row : kTable) {
    const auto opcode = static_cast<Opcode>(row.opcode);
    EXPECT_TRUE(is_known(opcode)) << row.opcode;
    EXPECT_EQ(header_size(opcode), row.header) << row.opcode;
    EXPECT_EQ(is_request(opcode), row.request) << row.opcode;
  }
  EXPECT_EQ(packet_size(Opcode::kRcSendOnly, 0), 16u);
  EXPECT_EQ(packet_size(Opcode::kRcSendOnly, 1), 20u);
  EXPECT_EQ(packet_size(Opcode::kRcSendOnly, 4), 20u);
  EXPECT_EQ(packet_size(Opcode::kRcSendFirst, 4096), 4112u);
}

TEST(Header, ServicesShareTheOperationsOfRc) {
  const Opcode read = in_service(Service::kXrc, Opcode::kRcReadRequest);
  EXPECT_EQ(int(read), 0xAC);
  EXPECT_EQ(service_of(read), Service::kXrc);
  EXPECT_EQ(as_rc(read), Opcode::kRcReadRequest);
  EXPECT_EQ(int(in_service(Service::kUc, Opcode::kRcWriteOnlyImm)), 0x2B);
  EXPECT_EQ(in_service(Service::kUd, Opcode::kRcSendOnly), Opcode::kUdSendOnly);
  EXPECT_EQ(service_of(Opcode::kUdSendOnlyImm), Service::kUd);
  EXPECT_EQ(service_of(Opcode::kCnp), Service::kCnp);
  EXPECT_EQ(in_service(Service::kRc, as_rc(Opcode::kRcFlush)), Opcode::kRcFlush);
}

// What a parser reads is what an encoder wrote, for every opcode and pad; the header without its
// payload is as long as the table says, and shorter by a word it is refused.
TEST(Header, EveryOpcodeRoundTrips) {
  std::mt19937_64 random(7);
  for (const Row& row : kTable) {
    const auto opcode = static_cast<Opcode>(row.opcode);
    for (std::size_t size : {0u, 1u, 2u, 3u, 4u, 255u, 4096u}) {
      Header header;
      header.opcode = opcode;
      header.solicited = random() & 1;
      header.ack_request = random() & 1;
      header.pkey = static_cast<std::uint16_t>(random());
      header.dest_qpn = random() & 0xFFFFFF;
      header.psn = random() & 0xFFFFFF;
      header.reth = {random(), static_cast<std::uint32_t>(random()),
                     static_cast<std::uint32_t>(random())};
      header.aeth = {static_cast<std::uint8_t>(random()),
                     static_cast<std::uint32_t>(random() & 0xFFFFFF)};
      header.immediate = static_cast<std::uint32_t>(random());
      header.invalidate_rkey = static_cast<std::uint32_t>(random());
      header.xrc_srqn = random() & 0xFFFFFF;
      header.deth = {static_cast<std::uint32_t>(random()),
                     static_cast<std::uint32_t>(random() & 0xFFFFFF)};
      header.feth = {static_cast<std::uint8_t>(random() & 15),
                     static_cast<std::uint8_t>(random() & 3)};
      header.atomic = {random(), static_cast<std::uint32_t>(random()), random(), random()};
      header.original = random();
      if (!row.payload) size = 0;
      std::vector<std::byte> payload(size);
      for (auto& byte : payload) byte = static_cast<std::byte>(random());

      const auto bytes = encode(header, payload);
      const auto packet = parse(bytes);
      ASSERT_TRUE(packet) << row.opcode << " with " << size;
      const Header& got = packet->header;
      EXPECT_EQ(got.opcode, opcode);
      EXPECT_EQ(got.solicited, header.solicited);
      EXPECT_EQ(got.ack_request, header.ack_request);
      EXPECT_EQ(got.pkey, header.pkey);
      EXPECT_EQ(got.dest_qpn, header.dest_qpn);
      EXPECT_EQ(got.psn, header.psn);
      if (has_reth(opcode)) {
        EXPECT_EQ(got.reth.virtual_address, header.reth.virtual_address);
        EXPECT_EQ(got.reth.rkey, header.reth.rkey);
        EXPECT_EQ(got.reth.dma_length, header.reth.dma_length);
      }
      if (has_atomic(opcode)) {
        EXPECT_EQ(got.atomic.virtual_address, header.atomic.virtual_address);
        EXPECT_EQ(got.atomic.rkey, header.atomic.rkey);
        EXPECT_EQ(got.atomic.swap_or_add, header.atomic.swap_or_add);
        EXPECT_EQ(got.atomic.compare, header.atomic.compare);
      }
      if (has_aeth(opcode)) {
        EXPECT_EQ(got.aeth.syndrome, header.aeth.syndrome);
        EXPECT_EQ(got.aeth.msn, header.aeth.msn);
      }
      if (has_immediate(opcode)) {
        EXPECT_EQ(got.immediate, header.immediate);
      }
      if (has_invalidate(opcode)) {
        EXPECT_EQ(got.invalidate_rkey, header.invalidate_rkey);
      }
      if (service_of(opcode) == Service::kXrc && row.request) {
        EXPECT_EQ(got.xrc_srqn, header.xrc_srqn);
      }
      if (service_of(opcode) == Service::kUd) {
        EXPECT_EQ(got.deth.qkey, header.deth.qkey);
        EXPECT_EQ(got.deth.source_qpn, header.deth.source_qpn);
      }
      if (opcode == Opcode::kRcFlush) {
        EXPECT_EQ(got.feth.placement, header.feth.placement);
        EXPECT_EQ(got.feth.selectivity, header.feth.selectivity);
      }
      if (opcode == Opcode::kRcAtomicAck) {
        EXPECT_EQ(got.original, header.original);
      }
      EXPECT_EQ(std::vector(packet->payload.begin(), packet->payload.end()), payload);
      EXPECT_EQ(encode(got, packet->payload), bytes);
    }
  }
}

TEST(Header, OneWordLessThanItsHeadersIsRefused) {
  for (const Row& row : kTable) {
    std::vector<std::byte> bytes(row.header + kIcrcSize);
    bytes[0] = static_cast<std::byte>(row.opcode);
    EXPECT_TRUE(parse(bytes)) << row.opcode;
    bytes.resize(bytes.size() - 4);
    EXPECT_FALSE(parse(bytes)) << row.opcode;
  }
}

TEST(Header, APayloadWhereTheTableHasNoneIsRefused) {
  for (const Row& row : kTable) {
    std::vector<std::byte> bytes(row.header + 8 + kIcrcSize);
    bytes[0] = static_cast<std::byte>(row.opcode);
    EXPECT_EQ(parse(bytes).has_value(), row.payload) << row.opcode;
    // Nor pad alone.
    bytes.resize(row.header + 4 + kIcrcSize);
    bytes[1] = std::byte{0x20};
    EXPECT_EQ(parse(bytes).has_value(), row.payload) << row.opcode;
  }
}

TEST(Header, FieldsWiderThan24BitsDoNotSpill) {
  Header header;
  header.opcode = Opcode::kRcAck;
  header.dest_qpn = 0xFF000001;
  header.psn = 0xFF000002;
  header.aeth = {syndrome::kAck, 0xFF000003};
  EXPECT_EQ(encode(header), from_hex("11 40 ffff  00 000001  00 000002  00 000003  cccccccc"));
}

TEST(Header, CongestionBitsAndMigReqOfOthersAreIgnored) {
  const auto packet = parse(from_hex("04 00 ffff  c0 000011  00 00002a  cccccccc"));
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->header.dest_qpn, 0x11u);
  EXPECT_FALSE(packet->header.solicited);
}

TEST(Header, RefusesWhatContradictsItself) {
  EXPECT_FALSE(parse({}));
  EXPECT_FALSE(parse(from_hex("04 40 ffff 00 000011 00 00002a")));             // no ICRC
  EXPECT_FALSE(parse(from_hex("04 41 ffff 00 000011 00 00002a cccccccc")));    // version 1
  EXPECT_FALSE(parse(from_hex("04 50 ffff 00 000011 00 00002a cccccccc")));    // pad of nothing
  EXPECT_FALSE(parse(from_hex("04 40 ffff 00 000011 00 00002a cccccccccc")));  // not in words
  EXPECT_FALSE(parse(from_hex("0a 40 ffff 00 000011 00 00002a cccccccc")));    // RETH is missing
  EXPECT_FALSE(parse(from_hex("15 40 ffff 00 000011 00 00002a cccccccc")));    // no such opcode
  // An acknowledge has no payload, but NAK_STOPPED carries a message.
  EXPECT_FALSE(parse(from_hex("11 40 ffff 00 000011 00 00002a 1f000001 01020304 cccccccc")));
  EXPECT_TRUE(parse(from_hex("11 40 ffff 00 000011 00 00002a 65000001 01020304 cccccccc")));
  // A READ request neither.
  EXPECT_FALSE(
      parse(from_hex("0c 40 ffff 00 000011 00 00002a 0000000000000000 00000000 00000000"
                     "01020304 cccccccc")));
}

TEST(Header, EveryTruncationIsRefusedOrStaysInside) {
  Header header;
  header.opcode = Opcode::kRcWriteOnlyImm;
  const auto whole = encode(header, std::vector<std::byte>(64));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A copy of exactly that size, so that a sanitizer sees a read behind its end.
    const std::vector<std::byte> cut(whole.begin(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(size));
    const auto packet = parse(cut);
    EXPECT_EQ(packet.has_value(), size >= 36 && size % 4 == 0) << size;
  }
}

TEST(Header, GarbageNeverEscapesItsBytes) {
  std::mt19937_64 random(11);
  int parsed = 0;
  for (int i = 0; i < 200000; ++i) {
    std::vector<std::byte> bytes(random() % 96);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    if (bytes.size() >= 2 && (i & 1)) {
      bytes[0] = static_cast<std::byte>(kTable[random() % std::size(kTable)].opcode);
      bytes[1] &= std::byte{0xF0};
    }
    const auto packet = parse(bytes);
    if (!packet) continue;
    ++parsed;
    ASSERT_TRUE(is_known(packet->header.opcode));
    ASSERT_GE(packet->payload.data(), bytes.data() + kBthSize);
    ASSERT_LE(packet->payload.data() + packet->payload.size(),
              bytes.data() + bytes.size() - kIcrcSize);
    ASSERT_EQ(packet_size(packet->header.opcode, packet->payload.size()), bytes.size());
  }
  EXPECT_GT(parsed, 1000);
}

}  // namespace
}  // namespace ferry::wire
