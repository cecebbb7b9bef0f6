#pragma once

#include <cstdint>
#include <string>

#include "base/unique_fd.h"

// What several hosts do with a checkpoint is decided in its store: of two that rename or delete a file there, the file
// system lets one succeed. So a host that hears no more of the one that it works for learns what was decided, or
// decides itself that nothing comes of it; and no two hosts go different ways. All throw Failure when the store does
// not answer as it should: then it is not known. Each keeps the store's folder open, so that no other one is mistaken
// for it.
namespace ferry::store {

// Of one attempt to restart a checkpoint: a file beside its folder. While it is there nothing is decided; it is renamed
// when the programs go on, and deleted when the attempt is given up.
class Verdict {
 public:
  // `attempt`: a number that no other attempt has.
  Verdict(const std::string& directory, const std::string& id, std::uint64_t attempt);

  // From now on it can be decided. What former attempts have left is taken away: for whoever has the checkpoint's lock.
  void open() const;
  // Decides that the programs go on. False: it was given up.
  bool go_on() const;
  // Whether the programs go on. If that is not decided yet, the attempt is given up by this.
  bool goes_on() const;
  // All hosts know it.
  void forget() const;

 private:
  std::string path(const std::string& name) const { return directory_ + "/" + name; }

  const std::string directory_, id_, undecided_, decided_;
  const UniqueFd folder_;
};

// Of a checkpoint that is being written: its folder is renamed when it is complete.
class Completion {
 public:
  Completion(const std::string& directory, const std::string& id);

  // Whether it is complete. If not, it is given up by this: its writer cannot complete it any more.
  bool is_complete() const;

 private:
  const std::string directory_, id_;
  const UniqueFd folder_;
};

// Takes away the verdicts of all attempts to restart a checkpoint.
void forget_verdicts(const std::string& directory, const std::string& id);

}  // namespace ferry::store
