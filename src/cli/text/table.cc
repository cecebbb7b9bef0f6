#include "cli/text/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace ferry::cli {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

Table::Table(std::vector<std::string> header) {
  rows_.push_back(std::move(header));
}

void Table::add(std::vector<std::string> row) {
  for (auto& cell : row) {
    if (cell.empty()) cell = "-";
  }
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  struct Column {
    std::size_t width = 0;
    bool numbers = true;
  };
  std::vector<Column> columns(rows_.front().size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      columns[i].width = std::max(columns[i].width, row[i].size());
      if (&row != &rows_.front()) {
        columns[i].numbers = columns[i].numbers && (is_digit(row[i][0]) || row[i] == "-");
      }
    }
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (i > 0) line += "  ";
      line += columns[i].numbers ? fmt::format("{:>{}}", row[i], columns[i].width)
                                 : fmt::format("{:<{}}", row[i], columns[i].width);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace ferry::cli
