#pragma once

#include <string>

#include "host/units/container/container.h"

// Containers of runc. They move as all units do (host/move/source/move.h), but runc is asked to have CRIU
// dump and restore them: it knows of their mounts, cgroups and pipes. CRIU's own settings, for
// which runc has no options, reach CRIU by CRIU_CONFIG_FILE.
//
// A record (container.h) is made when a container leaves or arrives. It has these fields, too:
//
//   bundle, config   the folder, and what its config.json says
//   network          veth_network.h; null: the container is on the host's network
//   piped            its stdout or stderr is a pipe, and has a file on the destination
//   stdio            that file, when the user has named one
//   rootfs           { folder, bytes }: the root filesystem is copied with the move
//   made             files and folders of an arrival that go if it fails, the innermost first
//   cgroups          those of an arrival, which were not there before
//   root             { folder, mounted }: the root filesystem, and what was mounted in it before
//
// An instance is runc:ID:NUMBER.
namespace ferry::host {

class Runc : public Runtime {
 public:
  // `program`: runc, in PATH or by path; `root`: runc's --root.
  Runc(std::string records, std::string program, std::string root);

  std::string kind() const override { return "runc"; }
  bool has_made(const std::string& instance) const override {
    return instance.starts_with("runc:");
  }
  bool is_only_roots() const override { return true; }
  Container describe(const std::string& host, const std::string& id) override;
  std::optional<Container> find(const std::string& id) override;
  std::vector<Container> all() override;
  void check_arrival(const std::string& host, const std::string& id,
                     const std::string& source_json) override;
  Container receive(const std::string& id, const std::string& source_json) override;
  Container with(const Container& container, const Extras& extras) override;
  std::optional<Rootfs> copied_rootfs(const Container& container) override;
  std::string dump(CriuRunner& criu, const CriuRunner::Dump& dump, const Container& container,
                   std::atomic<pid_t>* runc) override;
  std::string restore(CriuRunner& criu, const CriuRunner::Restore& restore,
                      const Container& container, std::atomic<pid_t>* pid) override;
  void forget(const Container& container) override;
  void leave(const Container& container) override;
  void left(const Container& container) override;
  void switch_network(const std::string& command, const std::string& instance) override;

 private:
  std::string folder_of(const std::string& id) const;
  std::string state_of(const std::string& id) const;
  void remove(const Container& container, const std::optional<std::vector<std::string>>& cgroups);

  const std::string program_, root_;
};

}  // namespace ferry::host
