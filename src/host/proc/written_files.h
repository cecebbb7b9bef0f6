#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace ferry::host {

// A regular file that a program has open for writing.
struct WrittenFile {
  std::string path;
  std::uint64_t bytes = 0;
  uid_t owner = 0;

  auto operator<=>(const WrittenFile&) const = default;
};

// Those of the process tree below `root`, as ferryd sees their names; of files that have been deleted none.
std::vector<WrittenFile> written_files(pid_t root);

// Such a file before a restart: CRIU restores a program only where its files are as long as they were. It stays open,
// and so does its folder: what somebody puts in their place later is not written to.
class LaterFile {
 public:
  // Throws Failure for a file that is shorter than it was, that is missing or has another owner, and for one that is
  // reached by a symbolic link: the path that a process has open leads through none.
  explicit LaterFile(const WrittenFile& file);

  // What is behind the length that the file had is put into a new file of the same folder, of which the name has
  // `suffix`, or `suffix`.2 and so on; then the file is cut back. Gives the path of the new one; empty: the file was
  // not longer, and stays as it is. Throws Failure: then the file is as it was.
  std::string cut_back(const std::string& suffix) const;

 private:
  std::uint64_t size() const;

  WrittenFile then_;
  UniqueFd folder_, file_;
};

}  // namespace ferry::host
