#pragma once

#include <string>
#include <utility>
#include <vector>

// What a later ferryd has to know of podman's containers that leave or arrive, in files of a
// folder. A token names one move of one container, on one of its hosts.
//
//   podman-TOKEN         an arrival that is not committed
//   podman-TOKEN.leaves  a departure: the container is to be removed when it has gone
//   podman-TOKEN.fifo    podman writes the archive of its checkpoint to it
namespace ferry::host {

struct PodmanArrival {
  std::string id, name;              // the container's
  std::vector<std::string> volumes;  // that come with it
  std::string archive;               // from which podman restores it; empty: it does not yet
};

struct PodmanDeparture {
  std::string id, name;
};

class PodmanNotes {
 public:
  explicit PodmanNotes(std::string directory) : directory_(std::move(directory)) {}

  static std::string new_token();

  // On the disk when it returns. Throws Failure.
  void arrives(const std::string& token, const PodmanArrival& arrival) const;
  // The arrival is committed, or nothing is left of it.
  void forget_arrival(const std::string& token) const;
  // All arrivals by their tokens. A file that cannot be read is left where it is.
  std::vector<std::pair<std::string, PodmanArrival>> arrivals() const;

  // On the disk when it returns. Throws Failure.
  void leaves(const std::string& token, const PodmanDeparture& departure) const;
  bool has_to_leave(const std::string& token) const;
  void forget_departure(const std::string& token) const;
  std::vector<std::pair<std::string, PodmanDeparture>> departures() const;

  std::string fifo(const std::string& token) const { return path_of(token) + ".fifo"; }

 private:
  std::string path_of(const std::string& token) const;
  static void write(const std::string& path, const std::string& text);

  const std::string directory_;
};

}  // namespace ferry::host
