#include "launch/run.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <net/if.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/companion.h"
#include "base/failure.h"
#include "base/job_name.h"
#include "base/kept_library.h"
#include "launch/become.h"
#include "launch/kernel_devices.h"

namespace ferry::launch {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr char kRunUsage[] =
    "Usage: ferry run [--netdev DEV] [--device NAME] [--job NAME] [--verbose] [--] PROGRAM "
    "[ARGS...]\n\n"
    "Runs a program with Ferry's RDMA devices.\n"
    "  --netdev DEV[,DEV]    network interfaces that become RDMA devices (default: all that are "
    "up)\n"
    "  --device NAME[,NAME]  the devices that the program gets: the kernel's (mlx5_0, rxe0) and "
    "Ferry's own (ferry0);\n"
    "                        auto: those of the kernel that the program can use, or Ferry's own "
    "where there are none\n"
    "                        (default: auto; with --netdev, Ferry's own)\n"
    "  --job NAME            the job that the program belongs to, for ferry checkpoint --job "
    "(default: "
    "the batch system's)\n"
    "  --verbose             says on stderr which device the program opens, and what auto means "
    "here\n";

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  std::string folders = path != nullptr ? path : "/usr/bin:/bin";
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string folder = end > begin ? folders.substr(begin, end - begin) : ".";
    const std::string candidate = folder + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0 && !std::filesystem::is_directory(candidate)) {
      return candidate;
    }
    begin = end + 1;
  }
  throw Failure("there is no program '" + name + "' in PATH");
}

// Calls `check` for each name of `list`, NAME[,NAME]...
void check_each(const std::string& list, void (*check)(const std::string& name)) {
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    check(list.substr(begin, end - begin));
    begin = end + 1;
  }
}

void check_netdev(const std::string& name) {
  if (::if_nametoindex(name.c_str()) != 0) return;
  throw Failure("there is no network interface '" + name + "' here; see: ip address");
}

// Ferry's own devices have names with numbers of interfaces, which the program may change.
void check_device(const std::string& name) {
  constexpr std::string_view kOwn = "ferry";
  const bool is_own = name.starts_with(kOwn) && name.size() > kOwn.size() &&
                      name.find_first_not_of("0123456789", kOwn.size()) == std::string::npos;
  if (is_own) return;
  const bool is_name = !name.empty() && name.find('/') == std::string::npos && name[0] != '.';
  if (is_name && std::filesystem::exists("/sys/class/infiniband/" + name)) return;
  throw Failure("there is no RDMA device '" + name +
                "' here; those of the kernel are in /sys/class/infiniband, Ferry's own are called "
                "ferry0, ferry1, ...");
}

void check_job(const std::string& name) {
  if (is_job_name(name)) return;
  throw Failure("'" + printable(name) +
                "' is no name of a job: 1 to 128 letters, digits and characters of ._-+:@");
}

void check_netdevs(const std::string& list) {
  check_each(list, check_netdev);
}

void check_devices(const std::string& list) {
  if (list != kAuto) check_each(list, check_device);
}

// The dynamic linker that an ELF file asks for; empty when it asks for none.
std::string interpreter_of(std::ifstream& file, const Elf64_Ehdr& header) {
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    file.seekg(static_cast<std::streamoff>(header.e_phoff + i * sizeof segment));
    if (!file.read(reinterpret_cast<char*>(&segment), sizeof segment)) return {};
    if (segment.p_type != PT_INTERP || segment.p_filesz > 4096) continue;
    std::string name(segment.p_filesz, '\0');
    file.seekg(static_cast<std::streamoff>(segment.p_offset));
    file.read(name.data(), static_cast<std::streamsize>(name.size()));
    return name.c_str();
  }
  return {};
}

using Variables = std::map<std::string, std::string>;

// Names the program's devices, if neither an option nor the environment does: `auto`, which it replaces by what that
// means here. Empty: Ferry's own devices.
void resolve_devices(const std::string& program, void* verbs, Variables* variables) {
  if (!variables->contains("FERRY_DEVICE")) {
    if (variables->contains("FERRY_NETDEV")) ::unsetenv("FERRY_DEVICE");  // of the shell's devices
    const bool is_named = variables->contains("FERRY_NETDEV") ||
                          std::getenv("FERRY_NETDEV") != nullptr ||
                          std::getenv("FERRY_DEVICE") != nullptr;
    if (is_named) return;
    variables->emplace("FERRY_DEVICE", kAuto);
  }
  std::string& devices = variables->at("FERRY_DEVICE");
  if (devices != kAuto) return;
  devices.clear();
  for (const auto& name : with_provider(usable_kernel_devices({}, own_addresses()), verbs))
    devices += (devices.empty() ? "" : ",") + name;
  if (!variables->contains("FERRY_VERBOSE")) return;
  std::fprintf(stderr, "ferry: %s gets %s\n", program.c_str(),
               devices.empty() ? "Ferry's own devices" : devices.c_str());
}

}  // namespace

std::string unsuitable(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return "cannot run " + path + ": " + error_text(errno);
  }
  if (S_ISDIR(status.st_mode)) return "cannot run " + path + ": it is a folder";
  if ((status.st_mode & (S_ISUID | S_ISGID)) != 0 && ::geteuid() != 0) {
    return path + " is set-user-id, so that no library can be preloaded into it";
  }
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return {};  // a script, or unreadable: its interpreter gets the library
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64) {
    return path + " is not an x86-64 program, which libferry.so is";
  }
  const std::string interpreter = interpreter_of(file, header);
  if (interpreter.empty()) {
    return path + " is statically linked, so that no library can be preloaded into it";
  }
  if (interpreter.find("musl") != std::string::npos) {
    return path + " uses musl (" + interpreter + "); Ferry needs a program for glibc 2.34 or later";
  }
  return {};
}

int run(const std::vector<std::string>& arguments) {
  std::size_t next = 0;
  struct Option {
    const char *name, *variable, *wanted;
    void (*check)(const std::string& value);
  };
  constexpr std::array kOptions = {
      Option{"--netdev", "FERRY_NETDEV", "a network interface", check_netdevs},
      Option{"--device", "FERRY_DEVICE", "an RDMA device", check_devices},
      Option{"--job", kJobVariable, "a job", check_job}};
  Variables variables;
  for (; next < arguments.size(); ++next) {
    const std::string& argument = arguments[next];
    if (argument == "--") {
      ++next;
      break;
    }
    if (argument == "--help" || argument == "-h") {
      std::fputs(kRunUsage, stdout);
      return 0;
    }
    if (!argument.starts_with('-')) break;
    if (argument == "--verbose") {
      variables["FERRY_VERBOSE"] = "on";
      continue;
    }
    const std::string name = argument.substr(0, argument.find('='));
    const auto option = std::find_if(kOptions.begin(), kOptions.end(),
                                     [&](const Option& o) { return name == o.name; });
    if (option == kOptions.end()) {
      throw Failure("unknown option '" + argument + "'; see: ferry run --help");
    }
    if (name == argument && next + 1 == arguments.size()) {
      throw Failure(name + " needs the name of " + option->wanted + "; see: ferry run --help");
    }
    const std::string value =
        name == argument ? arguments[++next] : argument.substr(name.size() + 1);
    option->check(value);
    variables[option->variable] = value;
  }
  if (next >= arguments.size()) throw Failure("run needs a program; see: ferry run --help");
  const std::vector<std::string> command(arguments.begin() + static_cast<std::ptrdiff_t>(next),
                                         arguments.end());
  const std::string library = kept_library(need_companion("libferry.so"));
  void* const verbs = ::dlopen("libibverbs.so.1", RTLD_LAZY);
  if (verbs == nullptr) {
    throw Failure("libibverbs.so.1 is missing; install the package libibverbs1");
  }
  const std::string program = find_program(command[0]);
  if (const std::string reason = unsuitable(program); !reason.empty()) throw Failure(reason);

  const char* preloaded = std::getenv("LD_PRELOAD");
  const std::string preload =
      preloaded != nullptr && *preloaded != '\0' ? library + ":" + preloaded : library;
  ::setenv("LD_PRELOAD", preload.c_str(), 1);
  resolve_devices(command[0], verbs, &variables);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  become(program, command);
}

}  // namespace ferry::launch
