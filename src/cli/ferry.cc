// ferry-client: all commands of ferry but run and lab. The program `ferry` (src/launch) has these two, and starts
// ferry-client for all others: its users see `ferry` only.

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/command_line.h"
#include "base/subcommands.h"
#include "cli/cdi.h"
#include "cli/certificates.h"
#include "cli/checkpoint/checkpoint.h"
#include "cli/checkpoint/checkpoints.h"
#include "cli/checkpoint/restart_wait.h"
#include "cli/client.h"
#include "cli/detach.h"
#include "cli/doctor/doctor.h"
#include "cli/history.h"
#include "cli/move/command.h"
#include "cli/pipe/pipe.h"
#include "cli/top.h"
#include "cli/vm/commands.h"
#include "ferry.pb.h"
#include "host/peers/api.h"

namespace {

namespace cli = ferry::cli;
using ferry::Commands;

constexpr std::uint32_t kMostSeconds = 31 * 24 * 3600;
constexpr std::uint32_t kMostAway =
    45;  // seconds: peers wait for a program that stands still for 60

// "90s", "10m", "2h".
CLI::AsNumberWithUnit as_seconds() {
  return CLI::AsNumberWithUnit(
      std::map<std::string, std::uint32_t>{{"s", 1}, {"m", 60}, {"h", 3600}},
      CLI::AsNumberWithUnit::UNIT_REQUIRED);
}

void add_ps(CLI::App& app, Commands& commands) {
  struct Options {
    bool queue_pairs = false, json = false;
    std::string job;
  };
  const auto options = std::make_shared<Options>();
  auto* ps = app.add_subcommand("ps", "lists programs that use RDMA devices of Ferry's");
  ps->add_flag("--qps", options->queue_pairs, "a line for each queue pair")
      ->excludes(ps->add_flag("--json", options->json, "print as JSON"));
  const auto* job =
      ps->add_option("--job", options->job, "the job of each program; NAME: only those of this job")
          ->expected(0, 1)
          ->type_name("[NAME]");
  commands.add(ps, [options, job] {
    const auto wanted = *job ? std::optional(options->job) : std::nullopt;
    return cli::ps(options->json, options->queue_pairs, wanted);
  });
}

void add_history(CLI::App& app, Commands& commands) {
  struct Options {
    std::string program;
    std::uint32_t limit = 0;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  auto* history = app.add_subcommand(
      "history", "lists the moves of this host, with their parts, and why those failed that did");
  history->add_option("PROGRAM", options->program, "only of programs of this name");
  history
      ->add_option("--limit", options->limit,
                   "only the latest so many (default: all that are kept)")
      ->check(CLI::Range(1u, 1000000u))
      ->type_name("N");
  history->add_flag("--json", options->json, "print as JSON");
  commands.add(history,
               [options] { return cli::history(options->program, options->limit, options->json); });
}

void add_top(CLI::App& app, Commands& commands) {
  struct Options {
    double interval = 2;
    std::uint32_t count = 0;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  auto* top = app.add_subcommand("top", "shows what programs and their QPs send and receive now");
  top->add_option("--interval", options->interval, "seconds from one look to the next")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  top->add_option("--count", options->count, "end after so many looks (default: at q or Ctrl-C)")
      ->check(CLI::Range(1u, 1000000u))
      ->type_name("N");
  top->add_flag("--json", options->json, "print a line of JSON for each look");
  commands.add(top, [options] {
    const std::chrono::milliseconds interval(std::lround(options->interval * 1000));
    return cli::top(interval, options->count, options->json);
  });
}

void add_resolve(CLI::App& app, Commands& commands) {
  struct Options {
    std::string move_id;
    bool commit = false, abort = false;
  };
  const auto options = std::make_shared<Options>();
  auto* resolve = app.add_subcommand("resolve", "decides a move in doubt, with its group, by hand");
  resolve->add_option("MOVE", options->move_id, "the move's id, from ferry ps")->required();
  auto* yes =
      resolve->add_flag("--commit", options->commit, "the program goes on at the destination");
  resolve->add_flag("--abort", options->abort, "the program goes on at the source")->excludes(yes);
  commands.add(resolve, [options] {
    if (options->commit == options->abort) {
      throw ferry::Failure("resolve needs --commit or --abort; see: ferry resolve --help");
    }
    return cli::resolve(options->move_id, options->commit);
  });
}

void add_certificate_options(CLI::App& command, long* days, std::string* ca_directory) {
  command.add_option("--days", *days, "that the certificate is valid")
      ->capture_default_str()
      ->check(CLI::Range(1L, 36500L));
  command.add_option("--ca-dir", *ca_directory, "the CA's key and certificate")
      ->capture_default_str();
}

void add_new_host_options(CLI::App& command, cli::NewHost* host, std::string* ca_directory) {
  command.add_option("--also", host->also, "another name or address of the host; can be repeated")
      ->type_name("NAME|ADDRESS");
  add_certificate_options(command, &host->days, ca_directory);
}

void add_tls_option(CLI::App& command, std::string* directory) {
  command.add_option("--tls-dir", *directory, "this host's key and certificate")
      ->capture_default_str();
}

void add_ca(CLI::App& app, Commands& commands) {
  struct Options {
    cli::NewHost host;
    cli::NewScraper scraper;
    std::string ca_directory = cli::kCaDirectory, tls = ferry::host::kTlsDirectory;
  };
  const auto options = std::make_shared<Options>();
  auto* ca = app.add_subcommand("ca", "the CA, which says whose ferryd belongs here");
  ca->require_subcommand(1);
  auto* init = ca->add_subcommand("init", "makes a CA, and this host's certificate");
  init->add_option("--name", options->host.host, "this host's name (default: the system's)");
  add_new_host_options(*init, &options->host, &options->ca_directory);
  add_tls_option(*init, &options->tls);
  commands.add(
      init, [options] { return cli::ca_init(options->host, options->ca_directory, options->tls); });
  auto* scraping = ca->add_subcommand(
      "scraper", "makes a certificate for who reads the metrics of the hosts, and nothing else");
  scraping->add_option("NAME", options->scraper.name, "of the scraper, e.g. prometheus")
      ->required();
  scraping->add_option("--output", options->scraper.output,
                       "folder to make, with ca.pem, scraper.pem and scraper.key (default NAME)");
  add_certificate_options(*scraping, &options->scraper.days, &options->ca_directory);
  commands.add(scraping,
               [options] { return cli::ca_scraper(options->scraper, options->ca_directory); });
}

void add_host(CLI::App& app, Commands& commands) {
  struct Options {
    cli::NewHost host;
    std::string ca_directory = cli::kCaDirectory, tls = ferry::host::kTlsDirectory, file;
    bool replace = false;
  };
  const auto options = std::make_shared<Options>();
  auto* hosts = app.add_subcommand("host", "the hosts that belong together");
  hosts->require_subcommand(1);
  auto* add = hosts->add_subcommand("add", "makes a host's certificate, on the CA's host");
  add->add_option("HOST", options->host.host,
                  "its name or address; USER@HOST: it joins over ssh, with nothing to copy")
      ->required();
  add->add_option("--output", options->host.output,
                  "file to copy to the host (default HOST.ferry); - is stdout");
  add_new_host_options(*add, &options->host, &options->ca_directory);
  commands.add(add, [options] { return cli::host_add(options->host, options->ca_directory); });
  auto* join = hosts->add_subcommand("join", "takes this host's certificate, from ferry host add");
  join->add_option("FILE", options->file, "from ferry host add; - is stdin")->required();
  join->add_flag("--replace", options->replace, "also when this host belongs to another CA");
  add_tls_option(*join, &options->tls);
  commands.add(join,
               [options] { return cli::host_join(options->file, options->tls, options->replace); });
}

void add_checkpoint(CLI::App& app, Commands& commands) {
  struct Options {
    std::vector<std::string> programs, hosts, encrypt_to;
    std::string directory, job, user, connected_to;
    bool stop = false, json = false, events = false;
    std::uint32_t keep = 0, every = 0;
  };
  const auto options = std::make_shared<Options>();
  auto* checkpoint = app.add_subcommand(
      "checkpoint", "writes running programs to storage, all as of one moment; they go on");
  auto* programs = checkpoint->add_option("PROGRAM", options->programs,
                                          "program name or pid; of another host: PROGRAM@HOST");
  auto* job = checkpoint
                  ->add_option("--job", options->job,
                               "all programs of the job, on all hosts (ferry ps --job)")
                  ->excludes(programs)
                  ->type_name("NAME");
  auto* connected =
      checkpoint
          ->add_option("--connected-to", options->connected_to,
                       "this program, as above, and all that are connected with it, on all hosts")
          ->excludes(programs)
          ->excludes(job)
          ->type_name("PROGRAM");
  checkpoint
      ->add_option("--hosts", options->hosts,
                   "the other hosts that are asked for programs (default: those that ferryd knows, "
                   "and those where peers are)")
      ->delimiter(',')
      ->excludes(programs)
      ->type_name("HOST,...");
  checkpoint
      ->add_option("--user", options->user,
                   "whose job it is, by name or number (default: the only one who has such a job)")
      ->needs(job)
      ->type_name("USER");
  checkpoint->add_option("--to", options->directory, "where checkpoints are")
      ->required()
      ->type_name("DIR");
  auto* stop =
      checkpoint->add_flag("--stop", options->stop, "the programs end when they are stored");
  checkpoint
      ->add_option("--every", options->every,
                   "another one each time that this time has passed (s, m or h), until it is ended")
      ->transform(as_seconds())
      ->check(CLI::Range(1u, kMostSeconds))
      ->excludes(stop)
      ->type_name("TIME");
  checkpoint
      ->add_option("--keep", options->keep,
                   "delete older checkpoints of these programs but for so many, this one included")
      ->check(CLI::Range(1u, 1000000u))
      ->type_name("N");
  checkpoint
      ->add_option("--encrypt-to", options->encrypt_to,
                   "encrypt what the programs have for who has this certificate's private key; may "
                   "be repeated")
      ->allow_extra_args(false)
      ->type_name("CERTIFICATE");
  checkpoint->add_flag("--json", options->json, "print the report as JSON");
  checkpoint->add_flag("--events", options->events,
                       "print how far it is, and how it ended, as lines of JSON on stderr");
  commands.add(checkpoint, [=] {
    if (!*programs && !*job && !*connected) {
      throw ferry::Failure(
          "PROGRAM, --job or --connected-to is required; see: ferry checkpoint --help");
    }
    ferry::v1::CheckpointRequest request;
    request.set_job(options->job);
    if (!options->user.empty()) request.set_user(cli::user_number(options->user));
    request.set_connected_to(options->connected_to);
    request.mutable_hosts()->Assign(options->hosts.begin(), options->hosts.end());
    request.mutable_programs()->Assign(options->programs.begin(), options->programs.end());
    request.set_directory(options->directory);
    request.set_stop(options->stop);
    request.set_keep(options->keep);
    cli::encrypt_to(options->encrypt_to, &request);
    if (options->every == 0) return cli::checkpoint(request, options->json, options->events);
    return cli::checkpoint_every(request, std::chrono::seconds(options->every), options->json,
                                 options->events);
  });
}

void add_restart(CLI::App& app, Commands& commands) {
  struct Options {
    std::string directory, id, key;
    std::vector<std::string> hosts, map;
    bool force = false, wait = false, json = false, events = false;
  };
  const auto options = std::make_shared<Options>();
  auto* restart = app.add_subcommand("restart",
                                     "starts the programs of a checkpoint again: on this host, or "
                                     "each where it was if they were on several");
  restart->add_option("DIR", options->directory, "where checkpoints are")->required();
  restart->add_option("--checkpoint", options->id, "its id (default: the latest that is complete)")
      ->type_name("ID");
  auto* on = restart
                 ->add_option("--on", options->hosts,
                              "the programs are dealt out to these hosts, by their size")
                 ->delimiter(',')
                 ->type_name("HOST,...");
  restart
      ->add_option("--map", options->map,
                   "the programs that were on host OLD go on on NEW; may be repeated")
      ->type_name("OLD=NEW")
      ->excludes(on);
  restart
      ->add_option("--key", options->key,
                   "the private key, in PEM, of a certificate for which it is encrypted")
      ->type_name("KEY");
  restart->add_flag("--force", options->force,
                    "also when a host where they were does not say whether they still run there");
  auto* json = restart->add_flag("--json", options->json, "print the report as JSON");
  auto* events =
      restart->add_flag("--events", options->events,
                        "print how far it is, and how it ended, as lines of JSON on stderr");
  restart
      ->add_flag("--wait", options->wait,
                 "stay until the programs have ended, and end them when this is ended")
      ->excludes(json)
      ->excludes(events);
  commands.add(restart, [options] {
    ferry::v1::RestartRequest request;
    request.set_directory(options->directory);
    request.set_checkpoint(options->id);
    request.mutable_hosts()->Assign(options->hosts.begin(), options->hosts.end());
    for (const auto& pair : options->map) {
      const std::size_t at = pair.find('=');
      const bool is_pair = at != std::string::npos && at > 0 && at + 1 < pair.size();
      if (!is_pair ||
          !request.mutable_map()->insert({pair.substr(0, at), pair.substr(at + 1)}).second) {
        throw ferry::Failure("--map is OLD=NEW, once for each OLD; not " + ferry::printable(pair));
      }
    }
    request.set_force(options->force);
    if (options->wait) return cli::restart_and_wait(request, options->key);
    return cli::restart(request, options->key, options->json, options->events);
  });
}

void add_checkpoints(CLI::App& app, Commands& commands) {
  struct Options {
    std::string directory, id, key;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  auto* checkpoints = app.add_subcommand("checkpoints", "lists the checkpoints in a directory");
  // Where an argument is required, CLI11 takes the name of a subcommand for it: `verify --help` too.
  checkpoints->add_option("DIR", options->directory, "where checkpoints are (required)");
  checkpoints->add_flag("--json", options->json, "print as JSON");
  const auto directory = [options] {
    if (options->directory.empty()) {
      throw ferry::Failure("DIR is required; see: ferry checkpoints --help");
    }
    return options->directory;
  };
  auto* verify = checkpoints->add_subcommand(
      "verify", "reads every byte of checkpoints, and says which file is damaged");
  verify->add_option("ID", options->id, "of one checkpoint (default: all that are complete)");
  verify
      ->add_option("--key", options->key,
                   "the private key, in PEM, with which what is encrypted is read, too")
      ->type_name("KEY");
  commands.add(verify,
               [=] { return cli::checkpoints_verify(directory(), options->id, options->key); });
  auto* remove = checkpoints->add_subcommand("rm", "deletes a checkpoint");
  remove->add_option("ID", options->id, "of the checkpoint")->required();
  commands.add(remove, [=] { return cli::checkpoints_remove(directory(), options->id); });
  commands.add(checkpoints, [=] { return cli::checkpoints(directory(), options->json); });
}

void add_doctor(CLI::App& app, Commands& commands) {
  struct Options {
    std::vector<std::string> hosts;
    std::string tls = ferry::host::kTlsDirectory;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  auto* doctor = app.add_subcommand(
      "doctor", "what works on this host, and towards others, and the way out of what does not");
  doctor->add_option("HOST", options->hosts,
                     "other hosts, as for ferry move --to (default: those that ferryd knows)");
  doctor->add_flag("--json", options->json, "print as JSON");
  add_tls_option(*doctor, &options->tls);
  commands.add(doctor,
               [options] { return cli::doctor::run(options->hosts, options->tls, options->json); });
}

void add_detach(CLI::App& app, Commands& commands) {
  struct Options {
    std::string device;
    std::vector<std::string> command;
    std::uint32_t limit = 30;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  auto* detach = app.add_subcommand(
      "detach", "has programs leave an RDMA device of the kernel while a command runs");
  detach->add_option("DEVICE", options->device, "as rxe0; see: rdma link")->required();
  detach
      ->add_option("--limit", options->limit,
                   "the programs come back after this time (s, m or h), whatever the command does")
      ->transform(as_seconds())
      ->check(CLI::Range(1u, kMostAway))
      ->default_str("30s")
      ->type_name("TIME");
  detach->add_flag("--json", options->json, "print the report as JSON");
  detach
      ->add_option("COMMAND", options->command,
                   "what takes the device away, or makes it anew, with its arguments, behind --")
      ->required();
  commands.add(detach, [options] {
    return cli::detach(options->device, std::chrono::seconds(options->limit), options->command,
                       options->json);
  });
}

void add_cdi(CLI::App& app, Commands& commands) {
  struct Options {
    std::string libraries = cli::kCdiLibraries, output = cli::kCdiFile, bundle, device;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  const auto libraries_option = [&](CLI::App* command) {
    command->add_option("--library-dir", options->libraries, "where what containers mount is put")
        ->capture_default_str();
  };
  auto* cdi = app.add_subcommand("cdi", "RDMA devices of Ferry's in containers");
  cdi->require_subcommand(1);
  auto* generate = cdi->add_subcommand(
      "generate", "writes the CDI specification, for podman run --device ferry.dev/rnic=all");
  auto* file = generate->add_option("--output", options->output, "the specification's file")
                   ->capture_default_str();
  generate->add_flag("--json", options->json, "print the specification instead")->excludes(file);
  libraries_option(generate);
  commands.add(generate, [options] {
    return cli::cdi_generate(options->libraries, options->output, options->json);
  });
  auto* apply = cdi->add_subcommand("apply", "adds the same to a bundle, for runc without podman");
  apply->add_option("BUNDLE", options->bundle, "the folder with config.json")->required();
  apply
      ->add_option("--device", options->device,
                   "an RDMA device of the kernel, as rxe0, instead of Ferry's own")
      ->type_name("NAME");
  libraries_option(apply);
  commands.add(apply, [options] {
    return cli::cdi_apply(options->libraries, options->bundle, options->device);
  });
}

// The words come as they are to ferry-piped, which says what is wrong with them.
void add_rule(CLI::App& pipe, Commands& commands, const std::string& action,
              const std::string& about) {
  struct Options {
    std::string from, to, before;
  };
  const auto options = std::make_shared<Options>();
  auto* rule = pipe.add_subcommand(action, about);
  rule->add_option("FROM", options->from, "address or prefix of who connects, or any")->required();
  rule->add_option("TO", options->to, "whereto: ADDRESS, PREFIX or any, with :PORT or without")
      ->required();
  rule->add_option("--before", options->before,
                   "this rule is asked before the one with that number (default: behind all)")
      ->type_name("NUMBER");
  commands.add(rule, [options, action] {
    std::string line = action + " " + options->from + " " + options->to;
    if (!options->before.empty()) line += " --before " + options->before;
    return cli::pipe_change(line);
  });
}

void add_pipe_limit(CLI::App& pipe, Commands& commands) {
  struct Options {
    std::string address, values[3];
  };
  const auto options = std::make_shared<Options>();
  auto* limit = pipe.add_subcommand(
      "limit", "the most that containers with an address may send and have; none: no limit");
  limit
      ->add_option("ADDRESS", options->address,
                   "of the container, a prefix that has one of its addresses, or any")
      ->required();
  constexpr std::pair<const char*, const char*> kOptions[] = {
      {"--rate", "bytes each second that all connections of a container send together"},
      {"--connection-rate", "bytes each second that a connection of a container sends"},
      {"--memory", "bytes of rings and queues that a container has"}};
  for (int each = 0; each < 3; ++each) {
    limit->add_option(kOptions[each].first, options->values[each], kOptions[each].second)
        ->type_name("BYTES|none");
  }
  commands.add(limit, [options, kOptions] {
    std::string line = "limit " + options->address;
    for (int each = 0; each < 3; ++each) {
      if (options->values[each].empty()) continue;
      line += std::string(" ") + kOptions[each].first + " " + options->values[each];
    }
    return cli::pipe_change(line);
  });
}

void add_pipe(CLI::App& app, Commands& commands) {
  struct Options {
    std::string rule;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  auto* pipe = app.add_subcommand("pipe", "who may connect by the pipe, and how much it may send");
  pipe->require_subcommand(1);
  auto* ps = pipe->add_subcommand("ps", "programs, connections, rules and limits of the pipe");
  ps->add_flag("--json", options->json, "print as JSON");
  commands.add(ps, [options] { return cli::pipe_ps(options->json); });
  add_rule(*pipe, commands, "allow", "lets programs connect, unless an earlier rule decides");
  add_rule(*pipe, commands, "deny", "lets programs not connect, and ends their connections");
  auto* forget = pipe->add_subcommand("forget", "deletes a rule");
  forget->add_option("NUMBER", options->rule, "of the rule, from ferry pipe ps")->required();
  commands.add(forget, [options] { return cli::pipe_change("forget " + options->rule); });
  add_pipe_limit(*pipe, commands);
}

int command(int argc, char** argv) {
  CLI::App app("Runs programs with RDMA devices of Ferry's, and moves them between hosts.",
               "ferry");
  ferry::add_version(app, FERRY_RELEASE);
  app.require_subcommand(1);
  // run and lab are here for --help only: src/launch carries them out.
  app.add_subcommand("run", "runs a program with Ferry's RDMA devices (ferry run --help)");
  app.add_subcommand("lab",
                     "hosts and containers on this machine, to try Ferry (ferry lab --help)");
  Commands commands;
  for (const auto add :
       {cli::add_move, add_ps, add_history, add_top, add_resolve, add_ca, add_host, add_checkpoint,
        add_checkpoints, add_restart, add_doctor, add_detach, cli::add_vm, add_cdi, add_pipe}) {
    add(app, commands);
  }
  if (argc < 2) {
    std::cout << app.help();
    return 2;
  }
  if (const auto status = ferry::parse_command_line(app, argc, argv)) return *status;
  return commands.run();
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
