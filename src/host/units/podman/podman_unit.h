#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <set>
#include <string>

#include "host/units/podman/podman.h"
#include "host/units/podman/podman_cleaner.h"
#include "host/units/podman/podman_notes.h"
#include "host/units/unit.h"

namespace ferry::host {

inline constexpr char kPodman[] = "podman";  // the kind

// What all containers of podman work with. All of it outlives them.
struct PodmanHere {
  const Podman& podman;
  const PodmanNotes& notes;
  PodmanCleaner& cleaner;
  const std::atomic<bool>& stopping;
};

// A container of podman. podman makes a checkpoint of it and restores that, here or on the other
// host, and in between the container is stopped (Unit::is_checkpointed()). An instance is
// podman:ID:TOKEN, with the token of its notes.
class PodmanUnit : public Unit {
 public:
  // One that runs here, or did so when a former ferryd began to move it.
  PodmanUnit(const PodmanHere& here, PodmanContainer container, std::string token);

  // What the source's details() say. Throws Failure when they are malformed.
  static PodmanContainer parse(const std::string& details, std::uint64_t* resident_bytes);

  std::string kind() const override { return kPodman; }
  std::string details() const override;
  std::string netns() const override { return netns_; }
  std::string instance() const override;
  bool is_checkpointed() const override { return true; }
  void publish() const override;

  std::string without_rdma(const std::string& what) const override;
  void want(const Extras& extras) override;
  void need_movable() const override;
  std::set<std::string> needed_files() const override { return {}; }
  void leave() const override;
  std::string dump(CriuRunner& criu, CriuRunner::Dump dump,
                   std::atomic<pid_t>* podman) const override;
  void left() const override;
  std::string come_back(std::chrono::milliseconds limit, bool* killed) const override;
  void end_restore() const override;

  std::string restore(CriuRunner& criu, CriuRunner::Restore restore,
                      std::atomic<pid_t>* podman) const override;
  std::chrono::milliseconds patience() const override;
  void forget() const override;

 private:
  std::string give_away(const CriuRunner::Dump& dump, std::future<std::string>& podman) const;
  bool await_checkpoint() const;

  const PodmanHere here_;
  const PodmanContainer container_;
  const std::string token_;
  const std::string netns_;
};

}  // namespace ferry::host
