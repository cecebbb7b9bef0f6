#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/unique_fd.h"
#include "cm/message.h"
#include "host/peers/kept_peers.h"
#include "host/standin/stand_in_host.h"
#include "port/endpoint.h"

namespace ferry::host {

class Credentials;
class Origins;

// Answers connection requests (REQ, SIDR_REQ) for rdma_cm listeners that have left this host, at the addresses that
// their programs still have: the answer says where to ask instead. The redirector asks the hosts of the RNICs that left
// which of them has the listener.
class Redirector {
 public:
  Redirector(KeptPeers& peers, const Origins& origins, StandInHost& stand_ins);
  ~Redirector();

 private:
  struct Request {
    StandInId stand_in = 0;  // that got the request; 0: the holder of UDP port 4791 here
    cm::Mad mad{};
    port::Address from, to;
  };

  void run();
  void refresh();
  void handle(const Request& request);

  KeptPeers& peers_;
  const Origins& origins_;
  StandInHost& stand_ins_;
  UniqueFd event_;
  std::mutex mutex_;
  std::deque<Request> requests_;
  bool stopping_ = false;
  std::map<port::Address, UniqueFd> receivers_;  // used by the thread only
  std::thread thread_;
};

}  // namespace ferry::host
