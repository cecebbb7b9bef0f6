// The TCP connection beside the QPs: exchange of addresses before, agreement on the end, and
// comparison of counts after the run. It stays open for the whole run, or both sides are told to do
// without (Options::apart).
//
//   stream = *record
//   record = type:u32 bytes:u32 body, host byte order; bodies are the structs below
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "failure.h"
#include "judge.h"
#include "message.h"

namespace stream_check {

inline constexpr uint32_t kProtocolVersion = 4;

enum class RecordType : uint32_t {
  kHello = 1,     // client: Hello
  kRefused = 2,   // either: text, the reason why it will not run
  kEndpoint = 3,  // both: Endpoint, then Hello::qps and Hello::idle times QpEndpoint
  kReady = 4,     // both: QPs are in RTS and receives posted
  kStop = 5,      // either: post no more payload
  kDone = 6,      // both: all payload is acknowledged; qps times kOps u64: how many were sent
  kVerdict = 7,   // both: qps times kOps Counts: what this side found in what the peer sent
};

struct Hello {
  uint32_t version = kProtocolVersion;
  uint32_t session = 0;
  uint32_t qps = 0;
  uint32_t max_length = 0;
  uint64_t messages = 0;
  uint32_t ops = 0;  // bit n: Op n
  uint32_t rate = 0;
  uint32_t apart = 0;  // 1: Options::apart
  uint32_t idle = 0;   // Options::idle
};

struct Endpoint {
  uint8_t gid[16] = {};
  uint32_t lid = 0;
  uint32_t mtu = 0;           // bytes
  uint32_t reads_served = 0;  // READs in progress that the QPs serve
  uint32_t unused = 0;
};

struct QpEndpoint {
  uint32_t qpn = 0;
  uint32_t psn = 0;
  uint64_t write_address = 0;
  uint64_t read_address = 0;
  uint32_t write_rkey = 0;
  uint32_t read_rkey = 0;
};

struct Record {
  RecordType type;
  std::vector<uint8_t> body;

  template <typename T>
  T as(size_t offset = 0) const {
    if (body.size() < offset + sizeof(T)) throw Failure("the peer sent a short record");
    T value;
    std::memcpy(&value, body.data() + offset, sizeof value);
    return value;
  }
};

class SideChannel {
 public:
  // Waits for one client on all addresses of this host.
  static SideChannel listen(uint16_t port);
  // Tries for 10 s: the server may not listen yet.
  static SideChannel connect(const std::string& host, uint16_t port);
  SideChannel(SideChannel&& other) noexcept;
  SideChannel& operator=(SideChannel&&) = delete;
  ~SideChannel();

  int fd() const { return fd_; }
  bool closed() const { return closed_; }
  // Closes the connection; the peer is not heard any more.
  void part();

  // False when the connection is gone. Blocks while the peer does not read.
  bool send(RecordType type, const void* body = nullptr, size_t bytes = 0);
  // The next record that is here, if any.
  std::optional<Record> receive();
  // Waits for a record of this type; throws Failure when another one or none comes within 30 s.
  Record wait(RecordType type);

 private:
  explicit SideChannel(int fd);
  void read_available();

  int fd_;
  bool closed_ = false;
  std::vector<uint8_t> inbox_;
};

}  // namespace stream_check
