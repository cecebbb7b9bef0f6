#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "host/peers/messages.h"
#include "host/units/outward.h"

// The file of --stdio: at the destination of a move it takes what the program prints, because the
// other ends of standard output and error have stayed behind.
namespace ferry::host {

struct StdioFile {
  std::string path;
  // The file is opened with the rights of this user and this group only: root's, or a program's
  // own.
  uid_t user = 0;
  gid_t group = 0;
  uid_t owner = 0;  // the program's user, who may open its new streams again (/dev/stdout)
};

// The streams of a program that lead out of it, and the file to which its output goes instead.
struct Redirection {
  StdioFile file;
  std::vector<OuterStream> streams;
};
Redirection from_message(const v1::Redirection& message);
void to_message(const Redirection& redirection, v1::Redirection* message);

// Throws Failure when this file cannot be appended to: opens it as pipe_into() will. When there is
// no file it makes none, but looks whether one can be made in its folder.
void check_stdio_file(const StdioFile& file);

// Gives the end to write to of a pipe whose other end goes to the file. The process that writes to
// the file, ferry-append, outlives this ferryd, as the program does. While the file cannot be
// written, on a full disk, that process waits, and the program for it; ferryd's log says so. Throws
// Failure.
UniqueFd pipe_into(const StdioFile& file);

// Gives what a program gets in place of one of its streams. Its input has ended (from a terminal:
// never comes); its output goes to the file, by a process as of pipe_into(). Throws Failure.
UniqueFd end_for(const OuterStream& stream, const StdioFile& file);

}  // namespace ferry::host
