#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "host/attestation/library.h"
#include "host/attestation/trusted_libraries.h"
#include "host/letters/carrier.h"
#include "host/peers/messages.h"

namespace ferry::host {

class KeptPeers;
struct ThisHost;

// Which libferry.so programs run with whose QPs of kernel devices are connected, here and on other hosts (MigrRDMA,
// 3.5.4). Another host's word of it is signed with that host's key. docs/security.md says what that proves.
// Any thread may call.
class Attestor {
 public:
  using LibraryOf = std::function<Library(pid_t)>;

  Attestor(const ThisHost& host, Carrier& carrier, KeptPeers& peers, TrustedLibraries trusted,
           LibraryOf look = library_of)
      : host_(host),
        carrier_(carrier),
        peers_(peers),
        trusted_(std::move(trusted)),
        look_(std::move(look)) {}

  // Answers the ferryd of another host. Throws Failure for a malformed request, and without a key to sign with.
  v1::AttestReply attest(const v1::AttestRequest& request) const;

  // Nobody is asked when all libraries are trusted. Throw Failure, one line: which program has another library.
  void need_trusted(pid_t pid);
  // Of the peers of these connections, which `ferryd` knows.
  void need_trusted(const Carrier::Ferryd& ferryd,
                    const std::vector<Carrier::Connection>& connections);
  // The same, with a line in the log for the first of several refusals.
  bool trusts(const Carrier::Ferryd& ferryd, const std::vector<Carrier::Connection>& connections);

 private:
  using Clock = std::chrono::steady_clock;

  void ask(const Carrier::Ferryd& ferryd, const std::vector<Carrier::Connection>& connections);
  v1::Library looked_at(pid_t pid) const;  // 0: nobody
  void need_trusted(const v1::Library& library, const std::string& whose) const;

  const ThisHost& host_;
  Carrier& carrier_;
  KeptPeers& peers_;
  const TrustedLibraries trusted_;
  const LibraryOf look_;
  std::mutex mutex_;
  // When a library was last seen to be trusted: of the program that has this QP, by the address of the ferryd that
  // said so; and of a process of this host, by its pid and its start_time().
  std::map<std::pair<std::string, device::Letter::End>, Clock::time_point> seen_there_;
  std::map<std::pair<pid_t, std::uint64_t>, Clock::time_point> seen_here_;
  std::map<std::string, Clock::time_point>
      refused_;  // when the log last told, by the address of a ferryd
};

}  // namespace ferry::host
