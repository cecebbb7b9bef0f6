#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "host/proc/process_facts.h"

// Descriptors that lead out of a program: the other end of the pipe, the connection or the terminal
// belongs to a process outside of it, which stays when the program moves.
namespace ferry::host {

// What the processes of a program have open.
struct OpenFiles {
  std::vector<pid_t> tree;                           // parents before children
  std::vector<std::vector<Descriptor>> descriptors;  // those of each process
};
OpenFiles open_files(pid_t root);

struct Outward {
  enum class Kind { kPipe, kUnix, kTerminal };
  Kind kind = Kind::kPipe;
  pid_t pid = 0;  // the process that has the descriptor
  Descriptor descriptor;
  std::string other;  // who has the other end, as a user may read it
  // As CRIU calls it (criu(8), --inherit-fd): "pipe:[4711]", "socket:[4711]", "tty[8803:1a]".
  std::string id;

  bool is_standard() const { return descriptor.number <= 2; }
  bool reads() const;
  bool writes() const;
};

// Pipes with one end in the program and the other one outside.
std::vector<Outward> outward_pipes(const OpenFiles& files);
// UNIX connections; but not those to ferryd, which belong to the library: it leaves them before the
// stop.
std::vector<Outward> outward_unix_sockets(const OpenFiles& files);
// Numbers of the pseudoterminals whose master sides the program has itself.
std::set<unsigned> terminals_inside(const OpenFiles& files);
// Pseudoterminals whose master side is outside: a window or sshd has it.
std::vector<Outward> outward_terminals(const OpenFiles& files);

// A standard input, output or error that leads out of a program; other descriptors may lead there,
// too.
struct OuterStream {
  Outward::Kind kind = Outward::Kind::kPipe;
  std::string id;  // as Outward::id
  bool reads = false, writes = false;
};
std::vector<OuterStream> outer_streams(pid_t root);

// The stream's name for CRIU's --external; empty: CRIU need not be told.
std::string external_name(const OuterStream& stream);

}  // namespace ferry::host
