#pragma once

#include <string>
#include <vector>

namespace ferry::cli {

// Columns as wide as what stands in them, two blanks apart, under a header. Numbers begin with a
// digit and stand on the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header);

  // As many cells as the header has; an empty one is printed as "-".
  void add(std::vector<std::string> row);
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
};

}  // namespace ferry::cli
