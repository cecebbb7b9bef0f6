#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/movable.h"
#include "wire/bytes.h"

// The control protocol between a Ferry process, the CRIU plugin and ferryd: messages over the UNIX
// stream socket kSocketPath (or $FERRYD_SOCKET) of the host. No protobuf here: the library lives in
// strangers' processes.
//
//   message = magic:32 version:16 type:16 length:32 body[length]
//             little-endian; SCM_RIGHTS descriptors come with the first byte
//
// A process (agent/agent.cc)      ferryd (host/)
//   REGISTER                  ->
//                             <-  STATUS                      ferry ps
//   STATUS_REPLY              ->
//                             <-  TRACK + /dev/userfaultfd    its memory is to be copied ahead
//   TRACKED + descriptor      ->    a userfaultfd of the process, which closes its own: CRIU dumps
//                                   no process that holds one
//                             <-  SUSPEND                     again and again until all peers over
//   SUSPENDING                ->    devices of the kernel are suspended; or once, to release them
//                             <-  STOP                        prepare, quiesce, park
//   STOPPED + descriptors     ->
//                             <-  STOP_TAKEN                  the stand-in answers; the process
//                                   closes its connection and holds no descriptor
//        (frozen, moved, thawed; or never frozen: the control block tells)
//   AWAKE                     ->    on a new connection, to the ferryd of the host it is on now
//                             <-  RESUME + descriptors
//                             <-  or STAY                     no decision yet, ask again
//   RESUMED                   ->
//   PEERS_KNOW                ->    peers acknowledged RESUME: the old place's stand-in can forget
//                                   them
//   LOCATE                    ->    the RNICs of peers that do not answer
//                             <-  LOCATED                     where a directory says that they are;
//                                   no answer when it says nothing
//
//   LETTERS                   ->    from the process's contexts over devices of the kernel to contexts
//                                   at the other ends of connections (device::Letter); ferryd carries them
//                             <-  DELIVER                     letters from these to the process
//   DELIVERED                 ->
//                             <-  MOVED_NAMES                 names of programs that have moved: after
//                                   REGISTER, if there are some, and whenever they change
//   DATAGRAM_QPS              ->    the process's UD QPs over devices of the kernel, whenever they change
//                                   after a move: before the process goes on, and later
//                             <-  DATAGRAM_QPS_TOLD           other hosts have heard, or had the time
//
// The CRIU plugin and the action scripts; ferryd answers each with DONE
//   PAUSE_TREE                ->    stops every Ferry process of the tree
//   FROZEN                    ->    all is frozen: ferryd marks the control blocks
//   DUMP_FAILED               ->    roll back
//   CLAIM                     ->    somebody else's CRIU restores from an image with the
//                                   checkpoint's note (below); the note of its DONE is kOfMove
//                                   when the image is for a move of ferryd's own
//   RESTORE_FAILED            ->    the CRIU that asks gives its claim back
//   RESTORED                  ->    a process of a claimed checkpoint is restored, and about to run.
//                                   In a move it waits for ferryd's answer: it runs if that is 0,
//                                   else CRIU leaves it stopped, for ferryd to remove; EAGAIN:
//                                   CRIU's plugin asks again
//   ACTION                    ->    CRIU's action script `name`; DONE's code is its exit code
//
// The DONE of a PAUSE_TREE has a note when others than ferryd will restore the image: the plugin
// puts it into the image (kCheckpointFile), as it is, and gives it to the ferryd where the image is
// restored (host/image/checkpoint_note.h).
//
// The ferry command                                 ferryd
//   WHO_AM_I                    ->
//                               <-  TICKET: its calls (host/peers/ferry.proto) carry it, and are the
//   user's of this connection (SO_PEERCRED) while that lives
namespace ferry::agent {

inline constexpr char kSocketPath[] = "/run/ferry/ferryd.sock";
inline constexpr char kSocketVariable[] = "FERRYD_SOCKET";
inline constexpr char kCheckpointFile[] = "ferry.img";  // in CRIU's image
inline constexpr char kOfMove[] = "move";               // DONE's note to a CLAIM
inline constexpr std::uint32_t kMagic = 0x59525246;     // "FRRY"
inline constexpr std::uint16_t kVersion = 6;
inline constexpr std::uint32_t kMaxBody = 64u << 20;  // bytes
inline constexpr std::size_t kMaxDescriptors = 1023;  // of one message: of all parcels of a process

enum class MessageType : std::uint16_t {
  kRegister = 1,
  kStatusReply = 2,
  kStopped = 3,
  kAwake = 4,
  kResumed = 5,
  kPeersKnow = 6,
  kLocate = 7,
  kTracked = 8,
  kSuspending = 9,
  kLetters = 10,
  kDelivered = 11,
  kDatagramQps = 12,
  kStatus = 16,
  kStop = 17,
  kStopTaken = 18,
  kResume = 19,
  kStay = 20,
  kLocated = 21,
  kTrack = 22,
  kSuspend = 23,
  kDeliver = 24,
  kMovedNames = 25,
  kDatagramQpsTold = 26,
  kPauseTree = 32,
  kFrozen = 33,
  kDumpFailed = 34,
  kAction = 35,
  kDone = 36,
  kClaim = 37,
  kRestoreFailed = 38,
  kRestored = 39,
  kWhoAmI = 48,
  kTicket = 49,
};

// A word in the process's memory that ferryd writes (process_vm_writev) while the process can be
// reached in no other way; its address is in REGISTER.
struct ControlBlock {
  std::uint32_t magic = kMagic;
  // kNone while it runs; kFrozen: written while frozen, so whoever reads it has been thawed; kGo:
  // the freeze will not happen, ask ferryd.
  enum Command : std::uint32_t { kNone = 0, kFrozen = 1, kGo = 2 };
  std::uint32_t command = kNone;  // atomic access
  std::uint32_t freezes =
      0;  // atomic access; +1 with each kFrozen: blocking calls that return EINTR compare it
};

struct Register {
  std::uint16_t version = kVersion;
  std::string build;                // build id of the library
  std::uint64_t control_block = 0;  // address in the process
};

struct CounterStatus {  // device::Counter
  std::string name;
  std::uint64_t value = 0;
};

struct ContextStatus {
  std::string device, netdev;
  std::vector<device::QpStatus> qps = {};
  device::Parcel place = {};  // MovableContext::place()
  std::vector<CounterStatus> counters = {};
  std::string obstacle = {};                              // what cannot move; empty: nothing
  std::string needs = {};                                 // MovableContext::needs()
  std::vector<port::Address> datagram_destinations = {};  // MovableContext::datagram_destinations()
};

// An ID of the kernel's rdma_cm that must be bound again after a move.
struct RdmaCmBound {
  std::uint16_t port_space = 0;  // rdma_ucm_port_space
  port::Endpoint local;          // its address may be that of any interface
  bool shares_port = false;      // RDMA_OPTION_ID_REUSEADDR
  bool is_ipv6_only = false;     // RDMA_OPTION_ID_AFONLY
  bool operator==(const RdmaCmBound&) const = default;
};

// Of a process with channels of the kernel's rdma_cm (relay/relay.h).
struct RdmaCmStatus {
  std::uint32_t channels = 0;
  std::string obstacle;   // what cannot move; empty: nothing
  std::string half_made;  // what cannot move yet; empty: nothing
  std::vector<RdmaCmBound> bound;
};

struct StatusReply {
  std::vector<ContextStatus> contexts;
  RdmaCmStatus rdma_cm =
      {};  // not in the message if there are no channels: older ferryds do not know it
};

// Names of our RNICs (docs/wire.md) that are not where they were last known to be.
struct Locate {
  std::vector<port::Endpoint> names;
};

struct LocatedPlace {
  port::Endpoint name, location;
  std::uint32_t epoch = 0;
};
struct Located {
  std::vector<LocatedPlace> places;
};

// What a context leaves with ferryd, and what ferryd gives it to go on with. The descriptors of the
// parcels travel beside the message, in order.
struct ParkedContext {
  std::string netdev;
  device::Parcel parcel = {};
  // The names by which peers know the context's QPs, or may come to know QPs that have no peer; with QPN 0, the
  // context's GIDs. A context of our RNIC has none here: its slots have names.
  std::vector<device::Letter::End> names = {};
};

struct Suspend {
  std::uint64_t move_id = 0;
  std::uint32_t limit_ms = 0;  // afterwards the process releases its peers by itself
  bool release = false;
};

struct Suspending {
  std::uint64_t move_id = 0;
  bool done = false;
};

struct Letters {  // of LETTERS and of DELIVER
  std::vector<device::Letter> letters;
};

struct Delivered {
  std::vector<std::int32_t> errors;  // for each letter: 0 or errno (MovableContext::deliver())
};

// The UD QPs of the process that are not what peers know (MovableContext::moved_datagram_qps()).
struct DatagramQps {
  std::vector<device::DatagramQps> contexts;
};

struct Stop {
  std::uint64_t move_id = 0;
  std::uint32_t deadline_ms = 0;
};

struct Stopped {
  std::uint64_t move_id = 0;
  std::int32_t error = 0;        // errno; then nothing was stopped
  std::uint64_t prepare_ns = 0;  // HELLO to unknown peers; traffic flows meanwhile
  std::uint64_t suspend_ns = 0;  // QPs stop
  std::uint64_t detach_ns = 0;   // sockets are given away
  std::uint32_t qps = 0;
  std::uint32_t unacked_psns = 0;
  std::vector<ParkedContext> contexts;
};

struct Tracked {
  std::int32_t error = 0;  // errno; then there is no descriptor
};

struct Awake {
  std::uint64_t move_id = 0;
  Register registration;
};

struct Resume {
  bool rollback = false;
  std::vector<ParkedContext> contexts;  // same order as in STOPPED
};

struct Stay {
  std::uint32_t retry_ms = 0;
};

struct Resumed {
  std::uint64_t move_id = 0;
  // errno of the first context that could not take its sockets. Negative: that of an ID of rdma_cm that could not be
  // made again; the program goes on without it.
  std::int32_t error = 0;
  std::uint64_t attach_ns = 0, resume_ns = 0;
};

struct PeersKnow {
  std::uint64_t move_id = 0;
  std::uint32_t remaining = 0;              // QPs whose RESUME is not acknowledged yet
  std::vector<std::uint32_t> qpns;          // virtual QPNs, acknowledged since the last PEERS_KNOW
  std::uint64_t retransmitted_packets = 0;  // over all QPs since the stop
};

struct PauseTree {
  std::int32_t pid = 0;
};
struct Frozen {
  std::int32_t pid = 0;
};
struct DumpFailed {
  std::int32_t pid = 0;
};
struct Claim {
  std::string note;
};
struct RestoreFailed {
  std::string note;
};
struct Restored {
  std::string note;
  std::int32_t pid = 0;
  bool waits = false;  // for the decision of a move: the process runs when ferryd says so
};
struct Action {
  std::string name;
  std::int32_t pid = 0;
  std::uint64_t move_id = 0;
};
struct Done {
  std::int32_t code = 0;
  std::string error;
  std::string note = {};
};

struct Ticket {
  std::string text;  // printable, cannot be guessed
};

// Bodies. parse() is false for malformed bytes. The descriptors of parcels are not part of the
// bytes; their number is.
std::vector<std::byte> encode(const Register&);
std::vector<std::byte> encode(const StatusReply&);
std::vector<std::byte> encode(const Suspend&);
std::vector<std::byte> encode(const Suspending&);
std::vector<std::byte> encode(const Letters&);
std::vector<std::byte> encode(const Delivered&);
std::vector<std::byte> encode(const DatagramQps&);
std::vector<std::byte> encode(const device::MovedNames&);
std::vector<std::byte> encode(const Stop&);
std::vector<std::byte> encode(const Stopped&);
std::vector<std::byte> encode(const Tracked&);
std::vector<std::byte> encode(const Awake&);
std::vector<std::byte> encode(const Resume&);
std::vector<std::byte> encode(const Stay&);
std::vector<std::byte> encode(const Resumed&);
std::vector<std::byte> encode(const PeersKnow&);
std::vector<std::byte> encode(const Locate&);
std::vector<std::byte> encode(const Located&);
std::vector<std::byte> encode(const PauseTree&);
std::vector<std::byte> encode(const Frozen&);
std::vector<std::byte> encode(const DumpFailed&);
std::vector<std::byte> encode(const Claim&);
std::vector<std::byte> encode(const RestoreFailed&);
std::vector<std::byte> encode(const Restored&);
std::vector<std::byte> encode(const Action&);
std::vector<std::byte> encode(const Done&);
std::vector<std::byte> encode(const Ticket&);
bool parse(std::span<const std::byte> body, Register* out);
bool parse(std::span<const std::byte> body, StatusReply* out);
bool parse(std::span<const std::byte> body, Suspend* out);
bool parse(std::span<const std::byte> body, Suspending* out);
bool parse(std::span<const std::byte> body, Letters* out);
bool parse(std::span<const std::byte> body, Delivered* out);
bool parse(std::span<const std::byte> body, DatagramQps* out);
bool parse(std::span<const std::byte> body, device::MovedNames* out);
bool parse(std::span<const std::byte> body, Stop* out);
bool parse(std::span<const std::byte> body, Stopped* out);
bool parse(std::span<const std::byte> body, Tracked* out);
bool parse(std::span<const std::byte> body, Awake* out);
bool parse(std::span<const std::byte> body, Resume* out);
bool parse(std::span<const std::byte> body, Stay* out);
bool parse(std::span<const std::byte> body, Resumed* out);
bool parse(std::span<const std::byte> body, PeersKnow* out);
bool parse(std::span<const std::byte> body, Locate* out);
bool parse(std::span<const std::byte> body, Located* out);
bool parse(std::span<const std::byte> body, PauseTree* out);
bool parse(std::span<const std::byte> body, Frozen* out);
bool parse(std::span<const std::byte> body, DumpFailed* out);
bool parse(std::span<const std::byte> body, Claim* out);
bool parse(std::span<const std::byte> body, RestoreFailed* out);
bool parse(std::span<const std::byte> body, Restored* out);
bool parse(std::span<const std::byte> body, Action* out);
bool parse(std::span<const std::byte> body, Done* out);
bool parse(std::span<const std::byte> body, Ticket* out);

// The descriptors of all parcels, in the order in which they travel beside the message; still owned
// by the parcels.
std::vector<int> descriptors_of(const std::vector<ParkedContext>& contexts);
// The reverse: gives received descriptors to the parcels, which have -1 for each descriptor when they come out of a
// message. False when the numbers of both differ; then nobody's ownership has changed.
bool give_descriptors(std::vector<int>* descriptors, std::vector<ParkedContext>* contexts);
void close_descriptors(std::vector<int>* descriptors);

// One message with its descriptors, over a blocking or non-blocking stream socket.
struct Message {
  MessageType type = MessageType::kDone;
  std::uint16_t version = kVersion;
  std::vector<std::byte> body;
  std::vector<int> descriptors;  // owned by the receiver of the Message
};
// Gives 0 or errno. Retries EINTR. The kernel takes 253 descriptors per sendmsg: more travel with
// the following bytes of the header, E2BIG above kMaxDescriptors.
int send_message(int socket, MessageType type, std::span<const std::byte> body,
                 std::span<const int> descriptors = {});
// Gives 0, errno, or EPIPE at the end of the stream. `timeout_ms` < 0: waits for ever; ETIMEDOUT:
// no message began, the stream is intact. EPROTO: not this protocol, or a message that began and
// was not finished within kMessageTimeMs, or with more descriptors than kMaxDescriptors, or with
// any while `takes_descriptors` is false (none of them is received then). After an error other than
// ETIMEDOUT the stream is of no more use.
inline constexpr int kMessageTimeMs = 5000;
int receive_message(int socket, Message* out, int timeout_ms = -1,
                    const std::atomic<bool>* takes_descriptors = nullptr);
// A connected, close-on-exec socket to the ferryd of this host, or -errno.
int connect_to_ferryd();

}  // namespace ferry::agent
