#pragma once

#include <string>
#include <vector>

// What `ferry doctor` finds. A file for each group of checks has what the group looks at, as plain
// facts; how these are read from the system; and the checks, which make findings of facts alone, so
// that tests can play any system.
namespace ferry::cli::doctor {

enum class State {
  kOk,
  kNote,     // works, or is not needed, and the user may want to know
  kProblem,  // does not work
};

struct Finding {
  std::string check;  // what was looked at, in a few words that never change
  State state = State::kOk;
  std::string found;
  std::string way_out;  // empty: there is nothing to do
  std::string host;     // that the finding is about; empty: this host
};
using Findings = std::vector<Finding>;

// Makes a finding of a failure's line, which has the text and the way out, with "; " between. `way_out`: the way out
// for a line that has none.
Finding of_failure(const std::string& check, const std::string& line,
                   const std::string& way_out = {});

}  // namespace ferry::cli::doctor
