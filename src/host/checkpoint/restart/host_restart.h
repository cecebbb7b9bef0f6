#pragma once

#include <string>
#include <vector>

namespace ferry::host {

// The programs of a checkpoint that go on on this host. The steps come in the order of their declaration, each once;
// all throw Failure. When this is destroyed before go_on(), nothing of the programs runs here.
class HostRestart {
 public:
  virtual ~HostRestart() = default;

  // Whether the programs can go on here. Changes nothing.
  virtual void check() = 0;
  // The programs are restored, and stand still. Files that they write to are as long as in the checkpoint; gives those
  // that have what was behind.
  virtual std::vector<std::string> restore() = 0;
  // Returns when all have gone on.
  virtual void go_on() = 0;

  // Ends the step that is under way in another thread soon, which throws; no others follow.
  virtual void give_up() = 0;
};

}  // namespace ferry::host
