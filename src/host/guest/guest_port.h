#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "guest.pb.h"
#include "host/guest/absence.h"

namespace ferry::host {

class Departures;
class Lines;
class NicKeeper;
struct ThisHost;

// Serves what the host's ferryd asks of this machine (talk/guest.proto), one request after the other. The host owns the
// machine, and is believed.
class GuestPort {
 public:
  // The port; none: it is not there now, and is looked for again.
  using Open = std::function<UniqueFd()>;

  GuestPort(const ThisHost& host, Detachments& detachments, const Departures& departures,
            NicKeeper& keeper, Open open);
  // ThisHost::stopping is set before, if programs may be away.
  ~GuestPort();
  GuestPort(const GuestPort&) = delete;

 private:
  // Gives an answer that is not the last one. Throws Failure, and Superseded when the host has asked for something else
  // meanwhile, or has gone: the request gets no more answers then.
  using Wait = std::function<void(const v1::GuestReply&)>;
  struct Superseded {};

  std::shared_ptr<Absence> absence();
  void run();
  void pause(std::chrono::milliseconds time);
  bool await_host(int port) const;
  void serve(Lines& lines);
  // Put what the reply has besides into *reply. Throw Failure.
  void answer(const v1::GuestRequest& request, const Wait& wait, v1::GuestReply* reply);
  void look(const v1::GuestRequest::Look& request, v1::GuestReply* reply);
  void leave(const v1::GuestRequest::Leave& request, const Wait& wait, v1::GuestReply* reply);
  void come_back(const Wait& wait, v1::GuestReply* reply);
  void await_former(const Wait& wait, v1::GuestReply* reply);

  const ThisHost& host_;
  Detachments& detachments_;
  const Departures& departures_;
  NicKeeper& keeper_;
  const Open open_;
  std::mutex mutex_;
  std::shared_ptr<Absence> absence_;  // the latest one
  std::size_t told_spans_ = 0;        // of its timeline, with the answer to the Leave
  std::condition_variable changed_;
  std::atomic<bool> is_ending_{false};
  std::thread thread_;
};

// The port that is a character device, when there is one. Logs once why it cannot be opened.
GuestPort::Open guest_port_at(const std::string& path);

}  // namespace ferry::host
