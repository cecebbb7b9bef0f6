#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ferry::host {

// A regular file that a program has open for writing.
struct WrittenFile {
  std::string path;
  std::uint64_t bytes = 0;

  auto operator<=>(const WrittenFile&) const = default;
};

// Those of the process tree below `root`, as ferryd sees their names; of files that have been deleted none.
std::vector<WrittenFile> written_files(pid_t root);

// CRIU restores a program only where its files are as long as they were. Of a longer one, what is
// behind is put into `aside`, or into `aside`.2 and so on if there is such a file, before it is cut
// back. Gives the name of that file; empty: it was not longer, and stays as it is. Throws Failure,
// also for a file that is shorter or missing.
std::string cut_back(const WrittenFile& file, const std::string& aside);

}  // namespace ferry::host
