#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "host/custody/custody.h"
#include "host/image/image_room.h"
#include "host/image/image_stream.h"
#include "host/journal/decision_log.h"
#include "host/move/destination/arrival.h"
#include "host/peers/messages.h"
#include "host/units/podman/podman.h"

// The destination's side of the move of a container of podman (podman_move.h): the archive comes,
// podman restores it, and the container's processes take the checkpoint from the source, which
// keeps it. Until they have taken it the arrival can be given up: then nothing of it is left here.
namespace ferry::host {

struct ThisHost;

class PodmanArrival {
 public:
  // Gives the arrival that the processes have become by taking the checkpoint; null: they have not.
  using Taken = std::function<std::shared_ptr<Arrival>(std::uint64_t move_id)>;

  PodmanArrival(const ThisHost& host, DecisionLog& decisions, const ImageRoom& room,
                ImageReceiver* images, Custody& custody, const Podman& podman, Taken taken,
                const v1::PrepareRequest& request, const std::string& from);
  // An arrival at a former ferryd, whose processes have not taken the checkpoint: gives it up, in a
  // thread of its own.
  PodmanArrival(const ThisHost& host, DecisionLog& decisions, const ImageRoom& room,
                ImageReceiver* images, Custody& custody, const Podman& podman, Taken taken,
                std::uint64_t move_id, const PodmanNote& note);
  // ThisHost::stopping is set before, or the arrival is over.
  ~PodmanArrival();

  std::uint64_t move_id() const { return move_id_; }
  const std::string& name() const { return note_.name; }
  const std::string& id() const { return note_.id; }
  const std::string& from() const { return from_; }      // the name in the source's certificate
  const std::string& source() const { return source_; }  // the source's address:port
  const ImageToken& token() const { return token_; }

  // Returns when the container goes on here, and gives RDMA's part of the blackout, in ns. Throws
  // Failure. `limit`: what is left of the source's standstill.
  std::uint64_t restore(std::chrono::milliseconds limit);
  // kUnknown: the source has to ask again.
  Answer abort();
  // Tell what came of asking the source.
  void source_is_at_work();
  void source_is_silent();
  // If the arrival is being removed: waits until nothing of it is left here.
  void await_clear();
  // True when the source should be asked.
  bool waits_long() const;
  bool in_doubt() const;
  bool is_over() const;
  // Sees whether the processes have taken the checkpoint.
  void look();

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { kWaiting, kRestoring, kRestored, kTaken, kClearing, kGone };

  void clear(std::unique_lock<std::mutex>& lock);
  std::string remove();

  const ThisHost& host_;
  DecisionLog& decisions_;
  ImageReceiver* const images_;  // null: no other host can be reached
  Custody& custody_;
  const Podman& podman_;
  const Taken taken_;
  const std::uint64_t move_id_;
  const PodmanNote note_;
  const std::string from_, source_, folder_, archive_;
  ImageToken token_{};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kWaiting;
  Clock::time_point since_ = Clock::now(), heard_ = Clock::now();
  std::thread clearer_;
};

}  // namespace ferry::host
