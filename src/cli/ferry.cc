// ferry: the command.

#include <iostream>
#include <string>
#include <vector>

#include "cli/client.h"
#include "cli/run.h"
#include "migrate/api.h"
#include "migrate/command_line.h"

namespace {

int command(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  const std::vector<std::string> rest(argv + std::min(argc, 2), argv + argc);
  // These two hand their arguments on as they are.
  if (first == "run") return ferry::cli::run(rest);
  if (first == "lab") return ferry::cli::lab(rest);

  CLI::App app("Runs programs with RDMA devices of Ferry's, and moves them between hosts.",
               "ferry");
  app.set_version_flag("--version", std::string("ferry ") + ferry::migrate::kVersion);
  app.require_subcommand(1);
  app.add_subcommand("run", "runs a program with Ferry's RDMA devices (ferry run --help)");
  app.add_subcommand("lab",
                     "hosts and containers on this machine, to try Ferry (ferry lab --help)");

  std::string program, to, move_id;
  bool json = false, commit = false, abort = false;
  auto* move = app.add_subcommand("move", "moves a running program to another host");
  move->add_option("PROGRAM", program, "container, program name or pid")->required();
  move->add_option("--to", to,
                   "address or name of the host; its ferryd listens on port 4780 unless given")
      ->required()
      ->type_name("HOST[:PORT]");
  move->add_flag("--json", json, "print the report as JSON");
  auto* ps = app.add_subcommand("ps", "lists programs with their queue pairs");
  ps->add_flag("--json", json, "print as JSON");
  auto* resolve = app.add_subcommand("resolve", "decides a move in doubt, by hand");
  resolve->add_option("MOVE", move_id, "the move's id, from ferry ps")->required();
  auto* yes = resolve->add_flag("--commit", commit, "the program goes on at the destination");
  resolve->add_flag("--abort", abort, "the program goes on at the source")->excludes(yes);
  if (argc < 2) {
    std::cout << app.help();
    return 2;
  }
  if (const auto status = ferry::migrate::parse_command_line(app, argc, argv)) return *status;

  if (*move) return ferry::cli::move(program, to, json);
  if (*ps) return ferry::cli::ps(json);
  if (commit == abort) {
    throw ferry::migrate::Failure("resolve needs --commit or --abort; see: ferry resolve --help");
  }
  return ferry::cli::resolve(move_id, commit);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return command(argc, argv);
  } catch (const std::exception& failure) {
    std::cerr << "ferry: " << failure.what() << '\n';
    return 1;
  }
}
