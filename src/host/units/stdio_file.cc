#include "host/units/stdio_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/companion.h"
#include "base/failure.h"
#include "ferry.pb.h"
#include "host/proc/subprocess.h"

namespace ferry::host {
namespace {

// The command that runs ferry-append (append/main.cc) for this task of it.
Command appender(const std::string& task, const StdioFile& file) {
  return {{companion("ferry-append"), task, std::to_string(file.user), std::to_string(file.group),
           file.path},
          {},
          {}};
}

std::string no_folder(const StdioFile& file) {
  return fmt::format("there is no folder for --stdio {}", printable(file.path));
}

// Why ferry-append failed: its exit status is errno.
std::string reason(const Outcome& outcome, const StdioFile& file) {
  const std::string name = printable(file.path);
  switch (outcome.status) {
    case ENOENT:
    case ENOTDIR: return no_folder(file);
    case EINVAL:
    case EISDIR:
    case ENXIO: return fmt::format("{}, of --stdio, is no regular file", name);
    case ELOOP:
      return fmt::format("{}, of --stdio, is a link to nothing; name the file itself", name);
    default:
      return fmt::format("user {} cannot write {}, of --stdio: {}; name another file", file.user,
                         name, one_line(outcome.err));
  }
}

// Copies what comes from `source` to the file until nobody can write there any more.
void copy_into(const StdioFile& file, const UniqueFd& source) {
  Command command = appender("copy", file);
  command.descriptors = {source.get(), STDERR_FILENO};
  if (const Outcome outcome = run(command); !outcome.ok()) throw Failure(reason(outcome, file));
}

UniqueFd connection_into(const StdioFile& file) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Failure("cannot make a socket: " + error_text(errno));
  }
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  ::shutdown(ours.get(), SHUT_WR);
  copy_into(file, ours);
  return theirs;
}

void give_to_owner(const UniqueFd& end, const StdioFile& file) {
  if (::fchown(end.get(), file.owner, static_cast<gid_t>(-1)) != 0) {
    throw Failure(fmt::format("cannot give a pipe or terminal to user {}: {}", file.owner,
                              error_text(errno)));
  }
}

// The terminal is nobody's controlling terminal. It hangs up when the process that copies ends.
UniqueFd terminal_into(const StdioFile& file) {
  const UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!master || ::unlockpt(master.get()) != 0) {
    throw Failure("cannot make a pseudoterminal: " + error_text(errno));
  }
  UniqueFd slave(::ioctl(master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!slave) throw Failure("cannot open a pseudoterminal: " + error_text(errno));
  give_to_owner(slave, file);
  copy_into(file, master);
  return slave;
}

}  // namespace

Redirection from_message(const v1::Redirection& message) {
  Redirection redirection{{message.file(), message.user(), message.group(), message.owner()}, {}};
  for (const auto& stream : message.streams()) {
    if (stream.kind() < 0 || stream.kind() > static_cast<int>(Outward::Kind::kTerminal)) {
      throw Failure("malformed request");
    }
    redirection.streams.push_back(
        {static_cast<Outward::Kind>(stream.kind()), stream.id(), stream.reads(), stream.writes()});
  }
  return redirection;
}

void to_message(const Redirection& redirection, v1::Redirection* message) {
  message->set_file(redirection.file.path);
  message->set_user(redirection.file.user);
  message->set_group(redirection.file.group);
  message->set_owner(redirection.file.owner);
  for (const auto& stream : redirection.streams) {
    auto* added = message->add_streams();
    added->set_kind(static_cast<v1::Redirection::Kind>(stream.kind));
    added->set_id(stream.id);
    added->set_reads(stream.reads);
    added->set_writes(stream.writes);
  }
}

void check_stdio_file(const StdioFile& file) {
  if (!file.path.starts_with('/')) throw Failure(no_folder(file));
  if (const Outcome outcome = run(appender("check", file)); !outcome.ok()) {
    throw Failure(reason(outcome, file));
  }
}

UniqueFd pipe_into(const StdioFile& file) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Failure("cannot make a pipe: " + error_text(errno));
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  give_to_owner(write_end, file);
  copy_into(file, read_end);
  return write_end;
}

UniqueFd end_for(const OuterStream& stream, const StdioFile& file) {
  switch (stream.kind) {
    case Outward::Kind::kUnix: return connection_into(file);
    case Outward::Kind::kTerminal: return terminal_into(file);
    default: break;
  }
  if (stream.writes) return pipe_into(file);
  UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing) throw Failure("cannot open /dev/null: " + error_text(errno));
  return nothing;
}

}  // namespace ferry::host
