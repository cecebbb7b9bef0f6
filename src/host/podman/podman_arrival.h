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
#include "host/move/arrival.h"
#include "host/peers/messages.h"
#include "host/units/podman/podman.h"

// The destination's side of the move of a container of podman's (podman_move.h): its archive comes,
// podman restores it, and its processes take the checkpoint from the source, which keeps it. Until
// they have it can be given up: then nothing is left of it here.
namespace ferry::host {

struct ThisHost;

class PodmanArrival {
 public:
  // The arrival that its processes have become by taking the checkpoint; null: they have not.
  using Taken = std::function<std::shared_ptr<Arrival>(std::uint64_t move_id)>;

  PodmanArrival(const ThisHost& host, DecisionLog& decisions, const ImageRoom& room,
                ImageReceiver* images, Custody& custody, const Podman& podman, Taken taken,
                const v1::PrepareRequest& request, const std::string& from);
  // Of a former ferryd that has not taken it: gives it up, in a thread of its own.
  PodmanArrival(const ThisHost& host, DecisionLog& decisions, const ImageRoom& room,
                ImageReceiver* images, Custody& custody, const Podman& podman, Taken taken,
                std::uint64_t move_id, const PodmanNote& note);
  // ThisHost::stopping is set before, or it is over.
  ~PodmanArrival();

  std::uint64_t move_id() const { return move_id_; }
  const std::string& name() const { return note_.name; }
  const std::string& id() const { return note_.id; }
  const std::string& from() const { return from_; }      // in the certificate
  const std::string& source() const { return source_; }  // address:port
  const ImageToken& token() const { return token_; }

  // Returns when it goes on here: the part of the blackout that was RDMA's, in ns. Throws Failure.
  // `limit`: the source's.
  std::uint64_t restore(std::chrono::milliseconds limit);
  // kUnknown: ask again.
  Answer abort();
  // What came of asking its source.
  void source_is_at_work();
  void source_is_silent();
  // Waits until nothing of it is left here, if that is being done.
  void await_clear();
  // Its source should be asked.
  bool waits_long() const;
  bool in_doubt() const;
  bool is_over() const;
  // Sees whether it was taken.
  void look();

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { kWaiting, kRestoring, kRestored, kTaken, kClearing, kGone };

  void clear(std::unique_lock<std::mutex>& lock);
  std::string remove();

  const ThisHost& host_;
  DecisionLog& decisions_;
  ImageReceiver* const images_;  // none: no other host can be reached
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
