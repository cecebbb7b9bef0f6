#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/checkpoint/step_bytes.h"
#include "host/checkpoint/take/host_part.h"
#include "host/peers/peer.h"

namespace ferry::host {

class Credentials;
struct ThisHost;

// The programs of another host in a checkpoint: its ferryd takes the steps, with a LocalPart.
class RemotePart final : public HostPart {
 public:
  // `to`, `identity`: as Peer has them. `programs`: their names there. `tell`: as LocalPart has it.
  RemotePart(const ThisHost& host, const std::string& to, std::vector<std::string> programs,
             bool stop, TellBytes tell, const std::string& identity = {});

  std::string host() const override { return host_; }
  std::size_t programs() const override { return programs_.size(); }
  std::vector<Connection> look(const std::string& directory, const std::string& id,
                               std::uint32_t first,
                               const std::optional<store::ContentKey>& key) override;
  void check() override;
  void freeze() override;
  void dump() override;
  double end() override;
  std::vector<store::Program> store() override;
  void give_up() override { steps_->cancel(); }

 private:
  v1::CutReply take(const v1::CutStep& step);

  Peer peer_;
  const std::string version_;  // of both
  const std::vector<std::string> programs_;
  const bool stop_;
  const TellBytes tell_;
  std::string host_;  // its own name, once it has said it
  const std::unique_ptr<Conversation<v1::CutStep, v1::CutReply>> steps_;
};

}  // namespace ferry::host
