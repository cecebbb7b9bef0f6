#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host/podman/podman_arrival.h"
#include "host/podman/podman_move.h"
#include "host/units/podman/podman.h"

// The moves of podman's containers that this host's ferryd has under way, in both directions. Calls
// that concern another move give nothing.
namespace ferry::host {

class KeptPeers;

class PodmanMoves {
 public:
  PodmanMoves(const ThisHost& host, ControlServer& control, DecisionLog& decisions,
              KeptPeers& peers, const ImageRoom& room, ImageReceiver* images, Custody& custody,
              PodmanArrival::Taken taken);

  // --- the ferry command. Throw Failure.
  // The container that a user means by a name, an id, or a program or pid in it.
  std::optional<PodmanContainer> find(const std::string& name, const std::string& runtime) const;
  v1::GroupReport move(uid_t user, PodmanContainer container, const std::string& to, bool force,
                       const PodmanMove::Progress& progress);
  void ps(uid_t user, v1::PsReply* reply) const;
  bool resolve(uid_t user, std::uint64_t move_id, bool commit);

  // --- other ferryds. Throw Failure.
  void check(const v1::CheckRequest& request) const;
  ImageToken prepare(const v1::PrepareRequest& request, const std::string& from);
  std::optional<std::uint64_t> restore(std::uint64_t move_id, std::chrono::milliseconds limit,
                                       const std::string& from);
  std::optional<Answer> abort(std::uint64_t move_id, const std::string& from);
  std::optional<Answer> decision(std::uint64_t move_id) const;  // as the move's source

  // Takes up what a former ferryd has left.
  void recover(std::uint64_t move_id, Side side, const Journal::Entry& entry);
  void keep_house();

 private:
  void await_clear(const std::string& id, const std::string& name) const;
  std::shared_ptr<PodmanMove> leaving(std::uint64_t move_id) const;
  std::shared_ptr<PodmanArrival> arriving(std::uint64_t move_id) const;
  std::shared_ptr<PodmanArrival> arriving_from(std::uint64_t move_id,
                                               const std::string& from) const;
  void ask_source(PodmanArrival& arrival) const;

  const ThisHost& host_;
  ControlServer& control_;
  DecisionLog& decisions_;
  KeptPeers& peers_;
  const ImageRoom& room_;
  ImageReceiver* const images_;  // null: no other host can be reached
  Custody& custody_;
  const PodmanArrival::Taken taken_;
  const Podman podman_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<PodmanMove>> moves_;
  std::map<std::uint64_t, std::shared_ptr<PodmanArrival>> arrivals_;
  std::chrono::steady_clock::time_point asked_;  // when sources were asked last
};

}  // namespace ferry::host
