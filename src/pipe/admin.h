#pragma once

#include <optional>
#include <string>

#include "pipe/driver/driver.h"

namespace ferry::pipe {

// What comes by the socket of root (kAdminSuffix), and by a file of rules.

// Whoever is at the other end is root, or the user of ferry-piped.
bool is_admin(int socket);
// Nothing: none has come, or it is too long.
std::optional<std::string> line_of_admin(int socket);
// Waits for some seconds for whoever reads it.
void send_to_admin(int socket, const std::string& text);
// Does what the line asks.
std::string answer_line(const std::string& line, Driver& driver);

// Does what all lines of the file ask but for empty ones and those that begin with #. Throws Failure, with the line.
void read_rules(const std::string& file, Driver& driver);

}  // namespace ferry::pipe
