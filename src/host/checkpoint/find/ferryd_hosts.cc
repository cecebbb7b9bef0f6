#include "host/checkpoint/find/ferryd_hosts.h"

#include <fmt/core.h>
#include <grpcpp/support/status.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/failure.h"
#include "base/net.h"
#include "base/parallel.h"
#include "ferry.pb.h"
#include "host/checkpoint/find/find_message.h"
#include "host/directory/directory.h"
#include "host/letters/carrier.h"
#include "host/peers/peer.h"
#include "host/peers/this_host.h"
#include "port/address_text.h"

namespace ferry::host {
namespace {

constexpr std::chrono::milliseconds kAnswer{10000};  // for a host to ask all its programs

// Ends of QPs that no program of these answers has.
std::set<Connection::End> qps_left(const Question& question,
                                   const std::vector<HostAnswer>& answers) {
  std::set<Connection::End> left;
  for (const auto& [own, peer] : question.ends) {
    if (peer == Connection::End()) left.insert(own);
  }
  for (const auto& answer : answers) {
    for (const auto& program : answer.programs) {
      for (const auto& each : program.connections) left.erase(each.local);
    }
  }
  return left;
}

}  // namespace

FerrydHosts::FerrydHosts(const ThisHost& host, Here here, const Carrier& carrier,
                         Directory& directory, std::vector<std::string> named)
    : host_(host),
      here_(std::move(here)),
      carrier_(carrier),
      directory_(directory),
      named_(std::move(named)) {
  if (!named_.empty()) need_other_hosts(host_);
}

std::string FerrydHosts::here() const {
  return host_.name;
}

std::vector<HostAnswer> FerrydHosts::ask(const Question& question, const std::string& only) {
  std::vector<HostAnswer> answers;
  if (only.empty() || only == host_.name) answers.push_back({host_.name, {}, here_(question)});
  if (only == host_.name || host_.address.empty()) return answers;
  if (!only.empty()) {
    ask({{{only, {}}, true}}, question, &answers);
    return answers;
  }
  ask(targets_for(question), question, &answers);
  if (named_.empty()) ask(told_by_directory(question, answers), question, &answers);
  return answers;
}

std::vector<FerrydHosts::Target> FerrydHosts::targets_for(const Question& question) const {
  std::vector<Target> targets;
  for (const auto& name : named_) {
    if (name != host_.name) targets.push_back({{name, {}}, true});
  }
  if (!named_.empty()) return targets;
  std::set<std::string> addresses{host_.address};
  for (const auto& [address, host] : carrier_.known()) {
    if (addresses.insert(address).second) targets.push_back({{address, host}});
  }
  for (const auto& end : qps_left(question, {})) {
    const std::string address = join_host_port(end.address, kFerrydPort);
    if (addresses.insert(address).second) targets.push_back({{address, {}}, false, true});
  }
  return targets;
}

// A directory service knows hosts that this ferryd has not met. One that has moved with its address has its place as
// its name.
std::vector<FerrydHosts::Target> FerrydHosts::told_by_directory(
    const Question& question, const std::vector<HostAnswer>& answers) const {
  std::map<std::string, std::string> hosts;
  for (const auto& end : qps_left(question, answers)) {
    const auto address = port::parse_address(end.address);
    try {
      const auto place = address ? directory_.lookup({*address, end.port}) : std::optional<Place>();
      if (place && place->ferryd != host_.address) hosts.emplace(place->ferryd, place->host);
    } catch (const Failure&) {
      // The directory does not answer: nobody is told where the peer is, and find_closure() says so.
    }
  }
  std::vector<Target> targets;
  for (const auto& [ferryd, host] : hosts) targets.push_back({{ferryd, host}});
  return targets;
}

void FerrydHosts::ask(const std::vector<Target>& targets, const Question& question,
                      std::vector<HostAnswer>* answers) {
  struct Job {
    const Target& target;
    Outcome& outcome;
  };
  std::vector<Outcome> outcomes(targets.size());
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (!given_up_.contains(targets[i].ferryd.address)) jobs.push_back({targets[i], outcomes[i]});
  }
  in_parallel(jobs, [&](const Job& job) { job.outcome = ask_one(job.target, question); });
  for (const auto& [target, outcome] : jobs) {
    if (!outcome.has_answered) {
      const auto& [address, name] = target.ferryd;
      given_up_.insert(address);
      if (!target.is_guess) silent_.insert(name.empty() ? address : name);
      continue;
    }
    if (!outcome.refusal.empty()) throw Failure(outcome.refusal);
    // A host has several addresses, and so has this one.
    const auto is_same = [&](const HostAnswer& other) { return other.host == outcome.answer.host; };
    if (outcome.answer.host != host_.name &&
        std::none_of(answers->begin(), answers->end(), is_same))
      answers->push_back(std::move(outcome.answer));
  }
}

FerrydHosts::Outcome FerrydHosts::ask_one(const Target& target, const Question& question) const {
  const auto& [address, identity] = target.ferryd;
  const auto request = to_message(question);
  v1::FindReply reply;
  std::optional<Peer> peer;
  grpc::Status status;
  try {
    peer.emplace(address, host_.credentials, identity);
    if (target.has_to_answer) {
      peer->call(request, &reply, kAnswer);
    } else {
      status = peer->try_call(request, &reply, kAnswer);
    }
  } catch (const Failure&) {
    if (target.has_to_answer) throw;
    return {};  // its name does not resolve now
  }
  const std::string& name = identity.empty() ? address : identity;
  if (status.error_code() == grpc::FAILED_PRECONDITION) {
    return {{}, true, fmt::format("{}: {}", name, one_line(status.error_message()))};
  }
  if (!status.ok()) return {};
  Outcome outcome{{printable(reply.host()), {peer->target(), peer->identity()}, {}}, true, {}};
  try {
    if (outcome.answer.host.empty()) throw Failure("it has no name");
    outcome.answer.programs = from_message(reply, question);
  } catch (const Failure& failure) {
    throw Failure(fmt::format("{} gave a malformed answer: {}", name, failure.what()));
  }
  if (!outcome.answer.programs.empty() && reply.version() != host_.version) {
    throw Failure(fmt::format("{} has Ferry {}, and this host {}; install the same on both", name,
                              printable(reply.version()), host_.version));
  }
  return outcome;
}

}  // namespace ferry::host
