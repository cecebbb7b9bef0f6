#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/control/control_server.h"
#include "host/history/history.h"
#include "host/units/unit.h"

namespace ferry::host {

// The units that can move on this host, whoever runs them.
class Units {
 public:
  struct Found {
    std::shared_ptr<Unit> unit;
    std::vector<FerryProcess> processes;  // none: it uses no RDMA device of Ferry's
  };

  // `kinds`: in the order in which they are asked whether a process, or an instance, is theirs.
  // podman is before runc, which runs podman's containers. The last but one is the lab, to which all
  // instances belong that no other kind has made; plain processes are the last.
  // `history`: where programs went that have left.
  Units(std::string host, std::vector<UnitKind*> kinds, const History& history)
      : host_(std::move(host)), kinds_(std::move(kinds)), history_(history) {}

  // `program`: the name of a container, a program's name, or a pid. The pid or name of a program in a
  // container means the container. `kind`: the unit's; empty: any. `user`: who asks, and is told of
  // the moves of her own programs only.
  // Throws Failure when there is no such unit, or there are several.
  Found find(const ControlServer& control, uid_t user, const std::string& program,
             const std::string& kind = {}) const;
  // The unit that a process belongs to. Throws Failure.
  Found of_process(const ControlServer& control, pid_t pid) const;
  // "'db'", or "'stress' (process 17)" of one that is no container.
  std::string in_words(const Unit& unit) const;
  // The name of the unit that a process belongs to; nothing: that has no name.
  std::optional<UnitName> name_of(pid_t pid) const;

  // Throws Failure when there is no kind of that name.
  UnitKind& kind(const std::string& name) const;

  // A unit that a former ferryd had to do with, by the journal; a plain process when nothing else
  // is known.
  std::shared_ptr<Unit> known(const std::string& name, const std::string& instance) const;
  void switch_network(const std::string& command, const std::string& instance) const;
  void clear_up_arrivals() const;
  void join_network_again(pid_t root) const;

 private:
  Found found(const ControlServer& control, std::shared_ptr<Unit> unit) const;
  // The kind of the containers of this name in which processes use RDMA; null: there is none. Throws
  // Failure when two kinds have some.
  UnitKind* kind_with(const ControlServer& control, const std::string& name) const;
  void need_not_left(uid_t user, const std::string& program) const;

  const std::string host_;
  const std::vector<UnitKind*> kinds_;
  const History& history_;
};

}  // namespace ferry::host
