#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "agent/protocol.h"
#include "cm/script.h"
#include "pipe/protocol/control.h"
#include "pipe/protocol/entry.h"
#include "precopy/left_out_file.h"
#include "precopy/page_store.h"
#include "precopy/pages_file.h"
#include "precopy/pages_index.h"
#include "rnic/image.h"
#include "virtual/messages/letters.h"

// Writes the corpus of the fuzz targets to a folder: `make_corpus tests/fuzz/corpus`. Everything
// comes from the code itself: packets between two RNICs of a simulation, messages between two
// communication managers, the bodies of the control protocol, images. The forms are those that the
// targets' first lines describe.
namespace ferry::fuzz {
namespace {

using namespace rnic::testing;
using Bytes = std::vector<std::byte>;

std::filesystem::path folder;

void write(const std::string& target, const std::string& name, const Bytes& bytes) {
  std::filesystem::create_directories(folder / target);
  std::ofstream out(folder / target / name, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

struct Tape : Bytes {
  Tape& put(std::initializer_list<unsigned> values) {
    for (const unsigned value : values) push_back(static_cast<std::byte>(value));
    return *this;
  }
  Tape& put(std::span<const std::byte> bytes) {
    insert(end(), bytes.begin(), bytes.end());
    return *this;
  }
};

// --- packets
constexpr unsigned kMended = 16 | 32;  // keys, MAC and cookies

// One packet, from BTH to ICRC, for QP `qp` of the target.
void put_packet(Tape& tape, unsigned qp, std::span<const std::byte> packet, unsigned flags) {
  auto bytes = packet.first(packet.size() - wire::kIcrcSize);
  std::size_t zeros = 0;
  while (zeros < bytes.size() && bytes[bytes.size() - 1 - zeros] == std::byte{}) ++zeros;
  const std::size_t fill = std::min<std::size_t>(zeros / 16, 255);
  bytes = bytes.first(bytes.size() - fill * 16);
  if (bytes.size() > 255) return;
  tape.put({qp << 4, flags, static_cast<unsigned>(bytes.size()), static_cast<unsigned>(fill)});
  tape.put(bytes);
}

// The same packet of another service.
Bytes in_service(std::span<const std::byte> packet, wire::Service service) {
  const auto parsed = wire::parse(packet);
  wire::Header header = parsed->header;
  header.opcode = wire::in_service(service, header.opcode);
  if (!wire::is_known(header.opcode)) return {};
  Bytes bytes(wire::packet_size(header.opcode, parsed->payload.size()));
  wire::encode_header(header, parsed->payload.size(), bytes);
  return bytes;
}

// Two connected RNICs, and what goes from one to the other.
struct Wire : SimPair {
  Bytes memory = Bytes(16 << 10);
  device::Mr *mr_a = nullptr, *mr_b = nullptr;
  std::vector<Bytes> to_a, to_b;

  Wire() {
    open();
    qp_a = a.create_qp();
    qp_b = b.create_qp();
    ready(qp_a, qp_b->qpn(), b.gid());
    ready(qp_b, qp_a->qpn(), a.gid());
    constexpr unsigned kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    mr_a = a.reg(memory.data(), memory.size(), kRights);
    mr_b = b.reg(memory.data(), memory.size(), kRights);
    run(std::chrono::milliseconds(5));  // HELLO
    const auto us = port::Address::from_ipv4(0x0A000001);
    network.set_trace([this, us](auto, const auto& from, const auto&, auto bytes, auto verdict) {
      if (verdict != port::SimVerdict::kSent) return;
      (from.address == us ? to_b : to_a).emplace_back(bytes.begin(), bytes.end());
    });
  }
  // With the MTU that the target has.
  static void ready(device::Qp* qp, std::uint32_t dest_qpn, const ibv_gid& gid) {
    ibv_qp_attr a = attributes(IBV_QPS_INIT, dest_qpn, gid);
    a.path_mtu = IBV_MTU_256;
    a.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
    qp->modify(a, kInitMask);
    a.qp_state = IBV_QPS_RTR;
    qp->modify(a, kRtrMask);
    a.qp_state = IBV_QPS_RTS;
    qp->modify(a, kRtsMask);
  }
  void post(ibv_wr_opcode operation, std::uint32_t length) {
    Send request(operation, 1, memory.data(), length, mr_a);
    if (operation >= IBV_WR_ATOMIC_CMP_AND_SWP && operation <= IBV_WR_ATOMIC_FETCH_AND_ADD) {
      request.atomic(memory.data(), mr_b->rkey(), 2, 3);
    } else {
      request.remote(memory.data(), mr_b->rkey());
    }
    request.post(qp_a);
  }
};

void make_packets() {
  struct Case {
    const char* name;
    ibv_wr_opcode operation;
    unsigned number;  // in the target's list
    std::uint32_t length;
  };
  static constexpr Case kCases[] = {{"send", IBV_WR_SEND, 0, 40},
                                    {"send-long", IBV_WR_SEND, 0, 700},
                                    {"send-imm", IBV_WR_SEND_WITH_IMM, 1, 300},
                                    {"write", IBV_WR_RDMA_WRITE, 2, 600},
                                    {"write-imm", IBV_WR_RDMA_WRITE_WITH_IMM, 3, 50},
                                    {"read", IBV_WR_RDMA_READ, 4, 700},
                                    {"compare-swap", IBV_WR_ATOMIC_CMP_AND_SWP, 5, 8},
                                    {"fetch-add", IBV_WR_ATOMIC_FETCH_AND_ADD, 7, 8}};
  for (const Case& c : kCases) {
    const std::string name = c.name;
    Wire wire;
    post_receive(wire.qp_b, 1, wire.memory.data(), 1024, wire.mr_b);
    wire.post(c.operation, c.length);
    wire.run(std::chrono::milliseconds(1));
    Tape requester, responder, uc, xrc;
    requester.put({0x08, c.number, c.length & 255, c.length >> 8});
    for (const auto& packet : wire.to_a) put_packet(requester, 0, packet, kMended);
    responder.put({0x09, 0, 4});
    uc.put({0x29, 0, 4});
    xrc.put({0x59, 0, 4});
    for (const auto& packet : wire.to_b) {
      put_packet(responder, 0, packet, kMended);
      if (const auto bytes = in_service(packet, wire::Service::kUc); !bytes.empty()) {
        put_packet(uc, 2, bytes, kMended);
      }
      put_packet(xrc, 5, in_service(packet, wire::Service::kXrc), kMended);
    }
    write("packets", name + "-requester", requester);
    write("packets", name + "-responder", responder.put({0x0d, 0x0f}));
    if (c.number < 4) write("packets", name + "-uc", uc);
    write("packets", name + "-xrc", xrc);
  }

  Tape datagram;
  for (const auto opcode : {wire::Opcode::kUdSendOnly, wire::Opcode::kMovedSendOnlyImm}) {
    wire::Header header;
    header.opcode = opcode;
    header.deth.source_qpn = 0x77;
    header.origin = {port::Address::from_ipv4(0x0A000002), 0x78, 1};
    Bytes bytes(wire::packet_size(opcode, 64));
    wire::encode_header(header, 64, bytes);
    datagram.put({0x39, 0, 4});
    put_packet(datagram, 3, bytes, kMended);
  }
  wire::MigrationMessage locate{.type = wire::MigrationType::kLocate, .cookie = 9, .wire_qpn = 5};
  Bytes bytes(wire::packet_size(wire::Opcode::kMigration, wire::kMigrationPayload));
  wire::Header header;
  header.opcode = wire::Opcode::kMigration;
  wire::encode_header(header, wire::kMigrationPayload, bytes);
  wire::encode(locate, std::span<std::byte, wire::kMigrationPayload>(bytes.data() + wire::kBthSize,
                                                                     wire::kMigrationPayload));
  put_packet(datagram, 3, bytes, 0);
  write("packets", "datagram", datagram);

  // A move of b, as a sees it; and what b gets while it is stopped.
  Wire wire;
  std::uint32_t unacked = 0;
  wire.post(IBV_WR_RDMA_WRITE, 600);
  wire.b.context->quiesce(std::chrono::seconds(1), &unacked);
  wire.run(std::chrono::milliseconds(30));
  wire.b.context->resume(true);
  wire.run(std::chrono::milliseconds(30));
  Tape peer, stopped;
  peer.put({0x08, 2, 600 & 255, 600 >> 8});
  for (const auto& packet : wire.to_a) put_packet(peer, 0, packet, kMended);
  stopped.put({0x0b, 0});
  for (std::size_t i = 0; i < wire.to_b.size(); ++i) {
    if (i == wire.to_b.size() / 2) stopped.put({0x0c});
    put_packet(stopped, 0, wire.to_b[i], kMended);
  }
  write("packets", "move-peer", peer);
  write("packets", "move-stopped", stopped.put({0x0a, 30, 0x0b, 1, 0x0c, 0x0a, 34}));
}

// --- cm
void put_mad(Tape& tape, const cm::Mad& mad, unsigned flags) {
  std::size_t length = mad.size();
  while (length > 0 && mad[length - 1] == std::byte{}) --length;
  tape.put({0, flags, 0, static_cast<unsigned>(length)}).put(std::span(mad).first(length));
}

void make_cm() {
  using cm::Party;
  constexpr unsigned kToUs = 4;
  Party a{1}, b{2};
  Tape active, passive;
  const auto cross = [](Party& from, Party& to, Tape& tape, unsigned flags) {
    from.sent();
    for (const auto& datagram : from.wire) put_mad(tape, datagram.mad, flags);
    to.take(from);
    to.events();
  };
  a.connect(b);
  active.put({8, 2});
  cross(a, b, passive, 0);
  b.manager.accept(b.id, b.reply(), b.now);
  passive.put({9, 0});
  cross(b, a, active, kToUs);
  a.manager.establish(a.id, a.now);
  active.put({10, 0});
  cross(a, b, passive, kToUs);
  b.manager.disconnect(b.id, b.now);
  passive.put({12, 0});
  cross(b, a, active, kToUs);
  a.manager.disconnect(a.id, a.now);
  active.put({12, 0});
  cross(a, b, passive, kToUs);
  write("cm", "active", active.put({14, 33}));
  write("cm", "passive", passive.put({14, 33}));

  Tape rejected, resolving, resolved;
  a.connect(b);
  rejected.put({8, 2});
  cross(a, b, resolved, 0);
  b.manager.reject(b.id, cm::Reason::kConsumer, {}, b.now);
  cross(b, a, rejected, kToUs);
  write("cm", "rejected", rejected);
  write("cm", "reject", resolved.put({11, 0}));
  cm::SidrReq request;
  request.service_id = cm::kService;
  a.manager.resolve(request, a.address, b.address, a.now);
  resolving.put({15, 1});
  resolved.clear();
  cross(a, b, resolved, 0);
  b.manager.answer_sidr(b.id, cm::SidrStatus::kValid, 5, 6, {}, b.now);
  cross(b, a, resolving, 0);
  write("cm", "resolving", resolving);
  write("cm", "resolved", resolved.put({15, 0}));
}

// --- control
void put_message(Tape& tape, agent::MessageType type, const Bytes& body) {
  const auto value = static_cast<unsigned>(type);
  tape.put({0, value & 255, value >> 8, static_cast<unsigned>(body.size()) & 255,
            static_cast<unsigned>(body.size()) >> 8});
  tape.put(body);
}

void make_control() {
  using agent::MessageType;
  const auto one = [](const char* name, MessageType type, const Bytes& body) {
    Tape tape;
    put_message(tape, type, body);
    write("control", name, tape);
  };
  const agent::Register registration{agent::kVersion, "0123456789abcdef", 0x7f0000001000};
  Wire wire;
  agent::StatusReply status{{{"ferry0", "rdma0", {}}}};
  wire.a.context->status(&status.contexts[0].qps);
  std::uint32_t unacked = 0;
  wire.post(IBV_WR_RDMA_WRITE, 40);
  wire.a.context->quiesce(std::chrono::seconds(1), &unacked);
  agent::Stopped stopped{.move_id = 7, .qps = 1, .contexts = {{"rdma0", {}}}};
  std::vector<rnic::Slot> slots;
  wire.a.context->detach(&slots);
  stopped.contexts[0].parcel = rnic::to_parcel(slots);
  one("register", MessageType::kRegister, agent::encode(registration));
  one("status-reply", MessageType::kStatusReply, agent::encode(status));
  status.contexts[0].place = device::to_parcel("rxe0");
  status.contexts[0].needs =
      "pds 1\nmrs 3\ncqs 100 2\nsrqs 512 1 1\nqps 2 1 16 0 1 0 0 1\n"
      "gid 1 2 00000000000000000000ffff0a4f0001\nmtu 3\nreads 4\nserved_reads 1\natomics 1\n";
  one("status-reply-needs", MessageType::kStatusReply, agent::encode(status));
  status.rdma_cm = {1,
                    "",
                    "an rdma_cm connection that is being made",
                    {{0x106, {port::Address::from_ipv4(7), 7174}, true, false}}};
  one("status-reply-rdma-cm", MessageType::kStatusReply, agent::encode(status));
  device::Letter letter;
  letter.from.qpn = 17;
  letter.to.qpn = 18;
  const virt::Introduction introduction{19, {}, {{0x100, 0x200}}, {}};
  for (const auto& [name, kind] :
       {std::pair{"letter-suspend", virt::LetterKind::kSuspend},
        std::pair{"letter-switch", virt::LetterKind::kSwitch},
        std::pair{"letter-disconnected", virt::LetterKind::kDisconnected}}) {
    letter.bytes = virt::encode(virt::LetterBody{kind, 1, false, false, introduction});
    one(name, MessageType::kLetters, agent::encode(agent::Letters{{letter}}));
  }
  virt::Introduction detached = introduction;
  detached.is_detached = true;
  letter.bytes =
      virt::encode(virt::LetterBody{virt::LetterKind::kSwitch, 1, false, false, detached});
  one("letter-switch-detached", MessageType::kLetters, agent::encode(agent::Letters{{letter}}));
  letter.bytes = virt::encode(virt::LetterBody{
      virt::LetterKind::kSwitch, 1, false, false, {19, {}, {{0x100, 0x200}}, {{0x300, 0x401}}}});
  one("letter-switch-windows", MessageType::kLetters, agent::encode(agent::Letters{{letter}}));
  one("suspend", MessageType::kSuspend, agent::encode(agent::Suspend{7, 4000, false}));
  one("suspending", MessageType::kSuspending, agent::encode(agent::Suspending{7, true}));
  one("delivered", MessageType::kDelivered, agent::encode(agent::Delivered{{0, 2}}));
  one("moved-names", MessageType::kMovedNames,
      agent::encode(device::MovedNames{
          {port::Address::from_ipv4(0x0A4F0001)},
          {{{{port::Address::from_ipv4(0x0A4F0001), port::Address::from_ipv4(0x0A4F0002)}},
            {{17, 18}}}}}));
  one("datagram-qps", MessageType::kDatagramQps,
      agent::encode(agent::DatagramQps{
          {{{{port::Address::from_ipv4(0x0A4F0001), port::Address::from_ipv4(0x0A4F0002)}},
            {{17, 18}}}}}));
  one("awake", MessageType::kAwake, agent::encode(agent::Awake{7, registration}));
  one("resumed", MessageType::kResumed, agent::encode(agent::Resumed{7, 0, 100, 200}));
  one("peers-know", MessageType::kPeersKnow, agent::encode(agent::PeersKnow{7, 1, {17, 18}, 3}));
  one("stop", MessageType::kStop, agent::encode(agent::Stop{7, 4000}));
  one("stay", MessageType::kStay, agent::encode(agent::Stay{10}));
  one("pause-tree", MessageType::kPauseTree, agent::encode(agent::PauseTree{4711}));
  one("action", MessageType::kAction, agent::encode(agent::Action{"post-dump", 4711, 7}));
  one("claim", MessageType::kClaim, agent::encode(agent::Claim{"note"}));
  one("done", MessageType::kDone, agent::encode(agent::Done{1, "cannot", "note"}));
  agent::Resume resume{true, stopped.contexts};
  slots[0].entries.clear();
  resume.contexts[0].parcel = rnic::to_parcel(slots);
  one("resume", MessageType::kResume, agent::encode(resume));

  // The stand-in of what stopped, and what the peer sends it: before the commit and after.
  Tape tape;
  put_message(tape, MessageType::kStopped, agent::encode(stopped));
  tape.put({96});
  wire.b.context->quiesce(std::chrono::seconds(1), &unacked);
  wire.b.context->resume(true);  // RESUME
  wire.post(IBV_WR_RDMA_WRITE, 40);
  for (const unsigned flags : {1 | 2 | 8, 1 | 2 | 4 | 8}) {
    for (const auto& packet : wire.to_b) {
      if (packet.size() < 256)
        tape.put({128, flags, static_cast<unsigned>(packet.size())}).put(packet);
    }
    for (const auto& packet : wire.to_a) {
      if (packet.size() < 256)
        tape.put({128, flags, static_cast<unsigned>(packet.size())}).put(packet);
    }
  }
  write("control", "stopped", tape);
}

// --- image
void make_image() {
  for (const char* name : {"requester", "responder", "objects_requester", "objects_responder"}) {
    write("image", name, from_file(std::string(FERRY_GOLDEN "/image_v1_") + name + ".hex"));
  }
  write("image", "version_2", from_file(FERRY_GOLDEN "/image_v2_a.hex"));
  SimPair pair;
  pair.open();
  int count = 0;
  device::Qp* unused = nullptr;
  device::QpInit init;
  init.type = IBV_QPT_UD;
  init.pd = pair.a.pd;
  init.send_cq = init.recv_cq = pair.a.cq;
  init.cap = {2, 2, 1, 1, 0};
  pair.a.context->create_qp(&init, &unused);
  write("image", "datagram", describe(*pair.a.context, &count));
  init.pd = pair.b.pd;
  init.send_cq = init.recv_cq = pair.b.cq;
  init.type = IBV_QPT_UC;
  pair.b.context->create_qp(&init, &unused);
  write("image", "uc", describe(*pair.b.context, &count));
}

// --- transfer
void make_transfer() {
  const auto frame = [](unsigned op, const Bytes& bytes) {
    Tape tape;
    tape.put(
        {op, static_cast<unsigned>(bytes.size() & 255), static_cast<unsigned>(bytes.size() >> 8)});
    return tape.put(bytes);
  };
  constexpr std::uint64_t kHere = 0x7f0000000000, kPage = 4096;
  const auto ranges = [](char tag, std::uint32_t pages,
                         std::initializer_list<std::uint64_t> bounds) {
    Bytes bytes;
    wire::ByteWriter out(&bytes);
    out.put(tag);
    out.append("\0\0\0", 3);
    out.put(static_cast<std::uint32_t>(bounds.size() / 2));
    out.put(std::int32_t{7});  // process
    out.put(pages);
    for (const std::uint64_t bound : bounds) out.put(bound);
    return bytes;
  };
  const auto file = [](const std::string& name, const std::string& content) {
    Bytes bytes;
    wire::ByteWriter out(&bytes);
    out.put('F');
    out.put(static_cast<std::uint8_t>(name.size()));
    out.put(std::uint16_t{0600});
    out.put(std::uint32_t{0});
    out.put(std::uint64_t{content.size()});
    out.append(name.data(), name.size());
    out.append(content.data(), content.size());
    return bytes;
  };
  const auto end = [](std::uint64_t files, std::uint64_t size) {
    Bytes bytes;
    wire::ByteWriter out(&bytes);
    out.put('E');
    out.append("\0\0\0\0\0\0\0", 7);
    out.put(files);
    out.put(size);
    return bytes;
  };
  const auto mark = [](char tag) {
    Bytes bytes(16);
    bytes[0] = static_cast<std::byte>(tag);
    return bytes;
  };
  Tape files;
  files.put(frame(3, file("core-1.img", "content"))).put(frame(3, file("empty", "")));
  write("transfer", "files", files.put(frame(0, end(2, 7))));
  Tape ahead;
  ahead.put(frame(1, ranges('K', 0, {kHere, kHere + 4 * kPage})));
  ahead.put(frame(2, ranges('P', 2, {kHere, kHere + kPage, kHere + 2 * kPage, kHere + 3 * kPage})));
  ahead.put(frame(0, mark('R')));
  ahead.put(frame(1, ranges('K', 0, {kHere + kPage, kHere + 3 * kPage})));
  ahead.put(frame(2, ranges('P', 1, {kHere + kPage, kHere + 2 * kPage})));
  ahead.put(frame(0, mark('R'))).put(frame(0, mark('S')));
  ahead.put(frame(3, file("pages-1.img", "x")));
  write("transfer", "ahead", ahead.put(frame(0, end(1, 1))));
}

// --- the pipe
void make_pipe_queue() {
  const auto entry = [](unsigned flags, std::uint64_t source, unsigned length) {
    pipe::Entry content;
    content.source = source;
    content.length = static_cast<std::uint16_t>(length);
    Tape bytes;
    bytes.put({1, flags});
    return bytes.put(std::as_bytes(std::span(&content, 1)));
  };
  constexpr unsigned kWork = 160, kPump = 192, kSend = 223;
  Tape good;
  for (unsigned number = 0; number < 4; ++number) {
    good.put(entry(1 | 2 | 4 | 8, number * 100, 100)).put({kSend + 20, kWork, 8, kPump, kPump});
  }
  write("pipe_queue", "sends", good);
  Tape bad;
  bad.put(entry(1 | 2 | 8, ~std::uint64_t{0} - 4, 9)).put({kSend + 20, kWork, 8, kPump, kSend + 3});
  write("pipe_queue", "beyond_the_block", bad);
  Tape read;
  read.put(entry(1 | 16, 1, 0))
      .put(entry(1 | 16 | 32, 0, 0))
      .put({kWork, 8, kSend + 30, kWork, 1, kPump});
  write("pipe_queue", "read_too_much", read);
  Tape scribbled;
  // The positions of the first queue, and its first slots.
  scribbled.put({128, 192, 0, 0, 8, 255, 255, 255, 255, 255, 255, 255, 255});
  scribbled.put({128, 128, 1, 0, 16, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  scribbled.put({kSend + 9, kWork, 200, kPump, kWork, 200});
  write("pipe_queue", "scribbled", scribbled);
}

void make_pipe_control() {
  const auto ask = [](unsigned who, pipe::Call call, unsigned socket, unsigned number = 0,
                      unsigned size = 0, unsigned last = 1, unsigned port = 80) {
    Tape bytes;
    return bytes.put(
        {who, static_cast<unsigned>(call), socket, number, 0, 0, 0, size, size, last, port});
  };
  constexpr unsigned kIpv4 = 2;
  using enum pipe::Call;
  Tape talk;
  talk.put(ask(0, kSocket, 0, kIpv4)).put(ask(0, kBind, 0)).put(ask(0, kListen, 0, 8));
  talk.put(ask(1, kSocket, 0, kIpv4)).put(ask(1, kBufferSizes, 0, 0, 20)).put(ask(1, kConnect, 0));
  talk.put(ask(0, kAccept, 0)).put(ask(1, kRings, 0)).put(ask(1, kAllocate, 0, 0, 12));
  Tape open = talk;
  talk.put({193, 0, 0, 255, 0, 224, 224}).put(ask(1, kFree, 0)).put({224});
  talk.put(ask(1, kShutdown, 0, 1)).put({224}).put(ask(1, kClose, 0)).put(ask(0, kClose, 1));
  write("pipe_control", "talk", talk.put(ask(0, kClose, 0)));
  write("pipe_control", "killed_client", open.put({193, 0, 0, 255, 255, 241, 224}));
  Tape alone;
  alone.put(ask(0, kSocket, 0, kIpv4)).put(ask(0, kBind, 0, 0, 0, 64)).put(ask(0, kListen, 0, 1));
  for (unsigned number = 0; number < 3; ++number) {
    alone.put(ask(0, kSocket, 0, kIpv4)).put(ask(0, kConnect, number + 1, 0, 0, 65));
  }
  write("pipe_control", "full_backlog", alone.put({240}));
}

void make_pipe_resume() {
  using enum pipe::Call;
  constexpr unsigned kRequest = 32, kSendOfAttacker = 160, kWork = 192, kSend = 207, kNumber = 128,
                     kIpv4 = 2;
  const auto ask = [](pipe::Call call, unsigned number = 0, unsigned first = kNumber,
                      unsigned second = kNumber, unsigned count = kNumber, unsigned gives = 64) {
    Tape bytes;
    return bytes.put(
        {kRequest, static_cast<unsigned>(call), 0, number, 0, first, second, count, gives});
  };
  const auto restored = [&] {
    Tape bytes;
    bytes.put({kSend + 20, kWork, kSend + 20, 0});
    bytes.put(ask(kRestore, kIpv4)).put(ask(kGiveRings, 0, kNumber, kNumber, kNumber, 0));
    return bytes.put(ask(kRestoreBlock, 0, kNumber, 12));
  };
  Tape good = restored();
  good.put(ask(kRejoin)).put(ask(kResumed)).put({kSendOfAttacker, 1, 0, 100, 0, kWork, kSend + 9});
  write("pipe_resume", "goes_on", good.put({0, kWork, kSend + 9}));
  Tape lies = restored();
  lies.put(ask(kRejoin, 100, 40, 40, 3)).put({kSendOfAttacker, 4, 0, 0, 0, kWork});
  write("pipe_resume", "lies", lies.put(ask(kConnect)).put(ask(kClose)));
  Tape other;
  other.put({1, 1, 255, 255, 255, 255, 4 + 8 + 16})
      .put(ask(kRestore, kIpv4, kNumber, kNumber, kNumber, 128 + 64));
  write("pipe_resume", "twice", other.put({kSend + 7, kWork, 3, 1, 2, 0, 2, 0, 64 + 1 + 2 + 4}));
}

// --- memory
void make_memory() {
  using precopy::kPage;
  precopy::PageRanges wanted, two;
  two.add(0, kPage);
  two.add(5 * kPage, 6 * kPage);
  for (std::uint64_t page = 0; page < 8; page += 2) wanted.add(page * kPage, (page + 1) * kPage);

  const auto made = std::filesystem::temp_directory_path() / "ferry-make-corpus";
  std::filesystem::create_directories(made);
  precopy::write_left_out(made, {{7, two}, {9, two}});
  std::ifstream file(made / precopy::kLeftOutFile, std::ios::binary);
  const std::string left_out{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove_all(made);
  write("memory", "left_out", Tape().put({0, 0}).put(std::as_bytes(std::span(left_out))));

  precopy::PageStore store(1 << 20);
  for (const auto& [start, end] : wanted) store.put(7, start, end);
  for (const auto& [name, pages] : {std::pair("pages", wanted), std::pair("pages_missing", two)}) {
    Tape bytes;
    bytes.put({1, 200});
    precopy::write_pages(store, 7, pages,
                         [&](std::span<const std::byte> piece) { bytes.put(piece); });
    write("memory", name, bytes);
  }

  precopy::PagesIndex index;
  index.add(kPage, {0, {std::byte{1}}});
  index.add(2 * kPage, {2, {std::byte{2}}});
  index.add(7 * kPage, {0, {std::byte{1}}});
  write("memory", "index", Tape().put({2, 0}).put(index.file()));

  // Two pages that are there and could be left out, and two that could not, as CRIU 4.2.1 writes them.
  Tape pagemap;
  pagemap.put({3, 0, 0x19, 0x43, 0x56, 0x54, 0x25, 0x40, 0x08, 0x56, 2, 0, 0, 0, 0x08, 1});
  for (const unsigned flags : {6, 4}) {
    pagemap.put({14, 0, 0, 0, 0x08, 0x80, 0x80, 0xbf, 0xf2, 0xd1, 0xf1, 0x1f, 0x10, 0, 0x20, flags,
                 0x28, 2});
  }
  write("memory", "pagemap", pagemap);
}

}  // namespace
}  // namespace ferry::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_corpus FOLDER\n");
    return 2;
  }
  ferry::fuzz::folder = argv[1];
  ferry::fuzz::make_packets();
  ferry::fuzz::make_cm();
  ferry::fuzz::make_control();
  ferry::fuzz::make_image();
  ferry::fuzz::make_transfer();
  ferry::fuzz::make_pipe_queue();
  ferry::fuzz::make_pipe_control();
  ferry::fuzz::make_pipe_resume();
  ferry::fuzz::make_memory();
  return 0;
}
