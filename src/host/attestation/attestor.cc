#include "host/attestation/attestor.h"

#include <fmt/core.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "base/failure.h"
#include "base/log.h"
#include "base/net.h"
#include "ferry.pb.h"
#include "host/letters/letter_message.h"
#include "host/peers/credentials.h"
#include "host/peers/kept_peers.h"
#include "host/peers/peer.h"
#include "host/peers/this_host.h"
#include "host/proc/process_tree.h"
#include "port/address_text.h"

namespace ferry::host {
namespace {

// Behind it, what is signed cannot be taken for anything else that the key signs.
constexpr char kPurpose[] = "ferry library attestation\n";
constexpr std::size_t kNonce = 32;            // bytes
constexpr int kMostConnections = 1 << 15;     // of a request
constexpr std::chrono::seconds kGoodFor{60};  // a program's library is not asked for again
constexpr std::size_t kMostSeen = 1 << 16;
constexpr std::chrono::milliseconds kAnswer{5000};

std::string text_of(const Carrier::Connection& connection) {
  return fmt::format("QP {:#08x} of {}", connection.peer.qpn, to_string(connection.peer.gid));
}

std::string made_nonce() {
  std::array<unsigned char, kNonce> bytes{};
  if (RAND_bytes(bytes.data(), bytes.size()) != 1) throw Failure("there are no random numbers");
  return {bytes.begin(), bytes.end()};
}

// For the ferryd that is asked, the peers are its own programs'.
void add_to(v1::AttestRequest* request, const std::vector<Carrier::Connection>& connections) {
  for (const auto& [own, peer] : connections)
    to_message(device::Letter{peer, own, {}}, request->add_connections());
}

}  // namespace

v1::AttestReply Attestor::attest(const v1::AttestRequest& request) const {
  if (host_.credentials == nullptr) throw Failure("ferryd has no key to sign with here");
  if (request.nonce().size() != kNonce || request.connections_size() > kMostConnections)
    throw Failure("malformed request");
  std::vector<Carrier::Connection> connections;
  for (const auto& message : request.connections()) {
    const auto [own, peer, bytes] = letter_of(message);
    connections.push_back({own, peer});
  }
  v1::Attested attested;
  attested.set_host(host_.name);
  *attested.mutable_request() = request;
  std::map<pid_t, v1::Library> libraries;
  for (const pid_t owner : carrier_.owners_of(connections)) {
    const auto [library, is_new] = libraries.try_emplace(owner);
    if (is_new) library->second = looked_at(owner);
    *attested.add_libraries() = library->second;
  }
  v1::AttestReply reply;
  reply.set_attested(attested.SerializeAsString());
  reply.set_signature(host_.credentials->sign(kPurpose + reply.attested()));
  reply.set_certificate(host_.credentials->certificate());
  return reply;
}

v1::Library Attestor::looked_at(pid_t pid) const {
  v1::Library message;
  try {
    if (pid == 0) throw Failure("no program has it");
    const Library library = look_(pid);
    message.set_build_id(library.build_id);
    message.set_digest(library.digest);
    message.set_is_intact(library.is_intact);
  } catch (const Failure& failure) {
    message.set_problem(failure.what());
  }
  return message;
}

void Attestor::need_trusted(const v1::Library& library, const std::string& whose) const {
  if (!library.problem().empty()) {
    throw Failure(fmt::format("nobody can say which libferry.so {} has: {}", whose,
                              printable(library.problem())));
  }
  if (!trusted_.has(library.digest())) {
    throw Failure(fmt::format("{} has a libferry.so that {} does not name: build {}, SHA-256 {}",
                              whose, trusted_.file(), printable(library.build_id()),
                              printable(library.digest())));
  }
  if (!library.is_intact()) {
    throw Failure(
        fmt::format("{} has a libferry.so whose code in memory is not that of its file", whose));
  }
}

void Attestor::need_trusted(pid_t pid) {
  if (trusted_.are_all()) return;
  const auto now = Clock::now();
  const std::pair process(pid, start_time(pid));
  {
    std::lock_guard lock(mutex_);
    const auto seen = seen_here_.find(process);
    if (seen != seen_here_.end() && now - seen->second < kGoodFor) return;
  }
  need_trusted(looked_at(pid), fmt::format("process {}", pid));
  std::lock_guard lock(mutex_);
  std::erase_if(seen_here_, [&](const auto& seen) { return now - seen.second >= kGoodFor; });
  seen_here_[process] = now;
}

void Attestor::need_trusted(const Carrier::Ferryd& ferryd,
                            const std::vector<Carrier::Connection>& connections) {
  if (trusted_.are_all()) return;
  const auto now = Clock::now();
  std::vector<Carrier::Connection> unknown;
  {
    std::lock_guard lock(mutex_);
    for (const auto& connection : connections) {
      const auto found = seen_there_.find({ferryd.address, connection.peer});
      if (found == seen_there_.end() || now - found->second >= kGoodFor)
        unknown.push_back(connection);
    }
  }
  if (unknown.empty()) return;
  if (ferryd.address.empty()) {
    std::vector<Carrier::Connection> theirs;
    for (const auto& [own, peer] : unknown) theirs.push_back({peer, own});
    auto owners = carrier_.owners_of(theirs);
    std::sort(owners.begin(), owners.end());
    owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
    for (const pid_t owner : owners) need_trusted(owner);
  } else {
    ask(ferryd, unknown);
  }
  std::lock_guard lock(mutex_);
  if (seen_there_.size() + unknown.size() > kMostSeen) seen_there_.clear();
  for (const auto& connection : unknown) seen_there_[{ferryd.address, connection.peer}] = now;
}

bool Attestor::trusts(const Carrier::Ferryd& ferryd,
                      const std::vector<Carrier::Connection>& connections) {
  try {
    need_trusted(ferryd, connections);
    return true;
  } catch (const Failure& failure) {
    const auto now = Clock::now();
    std::lock_guard lock(mutex_);
    std::erase_if(refused_, [&](const auto& told) { return now - told.second >= kGoodFor; });
    if (refused_.size() < kMostSeen && refused_.emplace(ferryd.address, now).second)
      log::warn("letters from {} are refused: {}", printable(ferryd.address), failure.what());
    return false;
  }
}

void Attestor::ask(const Carrier::Ferryd& ferryd,
                   const std::vector<Carrier::Connection>& connections) {
  const std::string bare = split_host_port(ferryd.address, kFerrydPort).first;
  const std::string& name = ferryd.host.empty() ? bare : ferryd.host;
  v1::AttestRequest request;
  request.set_nonce(made_nonce());
  add_to(&request, connections);
  v1::AttestReply reply;
  peers_.get(ferryd.address, ferryd.host)->call(request, &reply, kAnswer);
  host_.credentials->verify(kPurpose + reply.attested(), reply.signature(), reply.certificate(),
                            name);
  v1::Attested attested;
  if (!attested.ParseFromString(reply.attested()) ||
      attested.request().SerializeAsString() != request.SerializeAsString() ||
      attested.libraries_size() != static_cast<int>(connections.size())) {
    throw Failure(fmt::format("{} has signed an answer to another question", name));
  }
  for (int i = 0; i < attested.libraries_size(); ++i) {
    need_trusted(attested.libraries(i),
                 fmt::format("the program of {} on {}",
                             text_of(connections[static_cast<std::size_t>(i)]), name));
  }
}

}  // namespace ferry::host
