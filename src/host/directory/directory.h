#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/limits.h"
#include "port/endpoint.h"

// Who is where (docs/directory.md): what the ferryds of many hosts know of RNICs that have moved.
// An RNIC is named by its origin, for life; one that never moved is where its name says, and in no
// directory.
namespace ferry::host {

class Credentials;

struct Place {
  port::Endpoint origin;    // virtual GID, UDP port of the QPN slot where the RNIC was opened
  port::Endpoint location;  // address and UDP port of the slot where it is
  std::string host;         // the host's name there
  std::string ferryd;       // address:port of that host's ferryd
  std::uint32_t epoch = 0;  // counts the RNIC's stops: the place with the higher one is true
  bool ended = false;       // its process has ended there

  bool operator==(const Place&) const = default;
};

// Thread-safe. What this host has to say is told in the background, again and again until the
// directory knows it: an unreachable directory delays, it loses nothing.
class Directory {
 public:
  // Gets the place of the RNIC when it has changed, and nothing when nobody tells it any more.
  // Called by a thread of the directory; must not call watch() or unwatch().
  using Watcher = std::function<void(const std::optional<Place>&)>;

  virtual ~Directory() = default;

  // Nothing: nobody has told a place, or the RNIC has ended. Waits half a second at most for
  // others. Throws Failure when nobody could be asked.
  virtual std::optional<Place> lookup(const port::Endpoint& origin) = 0;

  // An RNIC is on this host. A place of a lower epoch than the directory's is not taken.
  virtual void put(const Place& place) = 0;
  // As put(), for an RNIC that is restored from a checkpoint: whatever was told of it before, also with a higher epoch,
  // has ended.
  virtual void renew(const Place& place) = 0;
  // The RNIC has ended here. No effect on an RNIC that is elsewhere by now.
  virtual void remove(const Place& place) = 0;
  // The RNIC has left this host for `next`, whose host puts it.
  virtual void left(const Place& next) = 0;

  virtual void watch(const port::Endpoint& origin, Watcher watcher) = 0;
  // When it returns, the watcher is not called any more.
  virtual void unwatch(const port::Endpoint& origin) = 0;

  // What this host itself knows of an RNIC, for those that ask; also when that has left or ended
  // here.
  virtual std::optional<Place> told(const port::Endpoint& origin) const = 0;
  // There is a ferryd of `host` at this address:port, which may be asked.
  virtual void met(const std::string& /*ferryd*/, const std::string& /*host*/) {}
  // The ferryds that it asks: names of hosts, by address:port.
  virtual std::map<std::string, std::string> hosts() const { return {}; }
};

struct DirectoryOptions {
  // "etcd://HOST:PORT[,HOST:PORT...]", "etcds://" for TLS to them, or "ferryd://[HOST[:PORT]...]":
  // ferryds that are asked besides those that this one has talked to.
  std::string url = "ferryd://";
  std::string self;                               // address:port of this ferryd
  const Credentials* credentials = nullptr;       // for Peer
  const Credentials* etcd_credentials = nullptr;  // for etcds://
  Limits::Time lease = Limits().lease;            // of places in etcd; in whole seconds there
};
// Throws Failure for a URL that is none of these.
std::unique_ptr<Directory> make_directory(const DirectoryOptions& options);

}  // namespace ferry::host
