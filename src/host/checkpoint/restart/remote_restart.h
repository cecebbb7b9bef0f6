#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/checkpoint/restart/host_restart.h"
#include "host/checkpoint/step_bytes.h"
#include "host/peers/peer.h"
#include "host/peers/peer_record.h"

namespace ferry::host {

struct ThisHost;

// The programs of a checkpoint that go on on another host: its ferryd takes the steps, with a LocalRestart.
class RemoteRestart final : public HostRestart {
 public:
  // `to`, `identity`: as Peer has them. `tell`: as LocalRestart has it. Throws Failure when it is not there.
  RemoteRestart(const ThisHost& host, const std::string& to, TellBytes tell,
                const std::string& identity = {});

  // Which of these programs runs there, in the words of host::what_runs(); empty: none. `facts`: as in the manifest.
  std::string what_runs(const std::vector<std::string>& facts, bool force);
  // What CHECK tells, of the programs there; before check().
  void set_programs(const v1::RestartStep& check) { *first_ = check; }

  void check() override;
  std::vector<std::string> restore() override;
  void go_on() override;
  std::string host() const override { return host_; }
  void give_up() override { steps_->cancel(); }
  PeerRecord record() const { return {peer_.target(), host_}; }

 private:
  v1::RestartStepReply take(const v1::RestartStep& step);

  Peer peer_;
  const std::unique_ptr<Conversation<v1::RestartStep, v1::RestartStepReply>> steps_;
  const TellBytes tell_;
  std::string host_;  // its own name
  const std::unique_ptr<v1::RestartStep> first_;
};

}  // namespace ferry::host
