#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "host/move/several/move_part.h"
#include "host/move/source/move.h"
#include "host/peers/peer.h"
#include "host/peers/peer_record.h"

namespace ferry::host {

struct ThisHost;

// The programs of another host: its ferryd takes the steps, with a LocalMovePart.
class RemoteMovePart final : public MovePart {
 public:
  // `name`: of the other host, for people; `ferryd`: of it. `look`: the step LOOK.
  RemoteMovePart(const ThisHost& host, const std::string& name, const PeerRecord& ferryd,
                 const v1::MovePartStep& look, Move::Progress progress);
  ~RemoteMovePart() override;

  Look look() override;
  v1::GroupPlan plan(const Others& others) override;
  void check(const Others& others) override;
  void prepare() override;
  void copy() override;
  void suspend() override;
  v1::GroupReport finish() override;
  void stop_waiting() override;
  void end() override;
  void give_up() override;

 private:
  v1::MovePartReply take(const v1::MovePartStep& step);

  Peer peer_;
  const std::string version_;  // of both
  const std::unique_ptr<const v1::MovePartStep> look_;
  const Move::Progress progress_;
  const std::atomic<bool>& stopping_;  // this ferryd
  const std::string host_;             // its name
  std::atomic<bool> is_over_{false};   // a step has failed
  const std::unique_ptr<Conversation<v1::MovePartStep, v1::MovePartReply>> steps_;
};

}  // namespace ferry::host
