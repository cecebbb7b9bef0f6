// ferry-client: the commands of ferry that talk with ferryds, and all others but run and lab
// (src/launch), whose program starts this one. To its users it is ferry.

#include <charconv>
#include <chrono>
#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "cli/cdi.h"
#include "cli/certificates.h"
#include "cli/client.h"
#include "cli/doctor/doctor.h"
#include "cli/history.h"
#include "cli/top.h"
#include "ferry.pb.h"
#include "host/peers/api.h"

namespace {

int command(int argc, char** argv) {
  CLI::App app("Runs programs with RDMA devices of Ferry's, and moves them between hosts.",
               "ferry");
  ferry::add_version(app, FERRY_RELEASE);
  app.require_subcommand(1);
  // These two are named for --help: they do not come here.
  app.add_subcommand("run", "runs a program with Ferry's RDMA devices (ferry run --help)");
  app.add_subcommand("lab",
                     "hosts and containers on this machine, to try Ferry (ferry lab --help)");

  std::vector<std::string> programs;
  std::string to, move_id;
  bool json = false, force = false, commit = false, abort = false;
  auto* move = app.add_subcommand("move", "moves running programs to another host: all, or none");
  move->add_option("PROGRAM", programs, "container, program name or pid")->required();
  move->add_option("--to", to,
                   "address or name of the host; its ferryd listens on port 4780 unless given")
      ->type_name("HOST[:PORT]");
  move->add_flag("--abort", abort, "give up the move that is under way; so does Ctrl-C");
  move->add_flag("--force", force,
                 "also if a peer that speaks no migration messages may give up meanwhile");
  bool runc = false, rootfs = false, always = false, never = false, events = false;
  double max_blackout = 0;
  move->add_flag("--runc", runc, "these are ids of runc's containers");
  std::string stdio;
  move->add_flag("--copy-rootfs", rootfs,
                 "copy the root filesystem of a container of runc's as well");
  move->add_option("--stdio", stdio,
                   "file there that output is appended to, of a program without a container that "
                   "has a terminal, pipes or systemd's journal for its input and output, or of a "
                   "container of runc's (default: stdio.log in its bundle)")
      ->check([](const std::string& file) {
        return file.starts_with('/') ? std::string() : "has to begin with /";
      })
      ->type_name("FILE");
  auto* ahead = move->add_flag("--copy-ahead", always,
                               "send memory while the program runs, however little it has");
  auto* not_ahead =
      move->add_flag("--no-copy-ahead", never, "send memory while the program stands still")
          ->excludes(ahead);
  move->add_option("--max-blackout", max_blackout,
                   "milliseconds that the program may stand still: memory is sent ahead until it "
                   "will be so short, and the move is given up when it will not be")
      ->check([](const std::string& text) {
        double number = 0;
        const char* end = text.data() + text.size();
        const auto [rest, error] = std::from_chars(text.data(), end, number);
        const bool is_good =
            error == std::errc() && rest == end && std::isfinite(number) && number > 0;
        return is_good ? std::string() : "'" + text + "' is no number of milliseconds above 0";
      })
      ->excludes(not_ahead)
      ->type_name("MS");
  bool dry_run = false;
  move->add_flag("--dry-run", dry_run,
                 "only look, here and there, whether they could move, and for how long they would "
                 "stand still");
  move->add_flag("--json", json, "print the report as JSON");
  move->add_flag("--events", events,
                 "print each step, and how the move ended, as a line of JSON on stderr");
  auto* ps = app.add_subcommand("ps", "lists programs that use RDMA devices of Ferry's");
  bool queue_pairs = false;
  ps->add_flag("--qps", queue_pairs, "a line for each queue pair")
      ->excludes(ps->add_flag("--json", json, "print as JSON"));
  std::string past_program;
  std::uint32_t past_limit = 0;
  auto* history = app.add_subcommand(
      "history", "lists the moves of this host, with their parts, and why those failed that did");
  history->add_option("PROGRAM", past_program, "only of programs of this name");
  history->add_option("--limit", past_limit, "only the latest so many (default: all that are kept)")
      ->check(CLI::Range(1u, 1000000u))
      ->type_name("N");
  history->add_flag("--json", json, "print as JSON");
  double interval = 2;
  std::uint32_t count = 0;
  auto* top = app.add_subcommand("top", "shows what programs and their QPs send and receive now");
  top->add_option("--interval", interval, "seconds from one look to the next")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  top->add_option("--count", count, "end after so many looks (default: at q or Ctrl-C)")
      ->check(CLI::Range(1u, 1000000u))
      ->type_name("N");
  top->add_flag("--json", json, "print a line of JSON for each look");
  auto* resolve = app.add_subcommand("resolve", "decides a move in doubt, with its group, by hand");
  resolve->add_option("MOVE", move_id, "the move's id, from ferry ps")->required();
  auto* yes = resolve->add_flag("--commit", commit, "the program goes on at the destination");
  resolve->add_flag("--abort", abort, "the program goes on at the source")->excludes(yes);
  ferry::cli::NewHost host;
  std::string ca_directory = ferry::cli::kCaDirectory, tls = ferry::host::kTlsDirectory, file;
  bool replace = false;
  const auto certificate_options = [&](CLI::App* to_app, long* days) {
    to_app->add_option("--days", *days, "that the certificate is valid")
        ->capture_default_str()
        ->check(CLI::Range(1L, 36500L));
    to_app->add_option("--ca-dir", ca_directory, "the CA's key and certificate")
        ->capture_default_str();
  };
  const auto new_host_options = [&](CLI::App* to_app) {
    to_app->add_option("--also", host.also, "another name or address of the host; can be repeated")
        ->type_name("NAME|ADDRESS");
    certificate_options(to_app, &host.days);
  };
  const auto tls_option = [&](CLI::App* to_app) {
    to_app->add_option("--tls-dir", tls, "this host's key and certificate")->capture_default_str();
  };
  auto* ca = app.add_subcommand("ca", "the CA, which says whose ferryd belongs here");
  ca->require_subcommand(1);
  auto* init = ca->add_subcommand("init", "makes a CA, and this host's certificate");
  init->add_option("--name", host.host, "this host's name (default: the system's)");
  new_host_options(init);
  tls_option(init);
  ferry::cli::NewScraper scraper;
  auto* scraping = ca->add_subcommand(
      "scraper", "makes a certificate for who reads the metrics of the hosts, and nothing else");
  scraping->add_option("NAME", scraper.name, "of the scraper, e.g. prometheus")->required();
  scraping->add_option("--output", scraper.output,
                       "folder to make, with ca.pem, scraper.pem and scraper.key (default NAME)");
  certificate_options(scraping, &scraper.days);
  auto* hosts = app.add_subcommand("host", "the hosts that belong together");
  hosts->require_subcommand(1);
  auto* add = hosts->add_subcommand("add", "makes a host's certificate, on the CA's host");
  add->add_option("HOST", host.host,
                  "its name or address; USER@HOST: it joins over ssh, with nothing to copy")
      ->required();
  add->add_option("--output", host.output,
                  "file to copy to the host (default HOST.ferry); - is stdout");
  new_host_options(add);
  auto* join = hosts->add_subcommand("join", "takes this host's certificate, from ferry host add");
  join->add_option("FILE", file, "from ferry host add; - is stdin")->required();
  join->add_flag("--replace", replace, "also when this host belongs to another CA");
  tls_option(join);
  std::vector<std::string> others;
  auto* doctor = app.add_subcommand(
      "doctor", "what works on this host, and towards others, and the way out of what does not");
  doctor->add_option("HOST", others,
                     "other hosts, as for ferry move --to (default: those that ferryd knows)");
  doctor->add_flag("--json", json, "print as JSON");
  tls_option(doctor);
  std::string libraries = ferry::cli::kCdiLibraries, output = ferry::cli::kCdiFile, bundle,
              cdi_device;
  const auto libraries_option = [&](CLI::App* to_app) {
    to_app->add_option("--library-dir", libraries, "where what containers mount is put")
        ->capture_default_str();
  };
  auto* cdi = app.add_subcommand("cdi", "RDMA devices of Ferry's in containers");
  cdi->require_subcommand(1);
  auto* generate = cdi->add_subcommand(
      "generate", "writes the CDI specification, for podman run --device ferry.dev/rnic=all");
  auto* cdi_file =
      generate->add_option("--output", output, "the specification's file")->capture_default_str();
  generate->add_flag("--json", json, "print the specification instead")->excludes(cdi_file);
  libraries_option(generate);
  auto* apply = cdi->add_subcommand("apply", "adds the same to a bundle, for runc without podman");
  apply->add_option("BUNDLE", bundle, "the folder with config.json")->required();
  apply
      ->add_option("--device", cdi_device,
                   "an RDMA device of the kernel, as rxe0, instead of Ferry's own")
      ->type_name("NAME");
  libraries_option(apply);
  if (argc < 2) {
    std::cout << app.help();
    return 2;
  }
  if (const auto status = ferry::parse_command_line(app, argc, argv)) return *status;

  if (*move && abort) return ferry::cli::cancel(programs);
  if (*move) {
    if (to.empty()) throw ferry::Failure("--to is required; see: ferry move --help");
    using Request = ferry::v1::MoveRequest;
    Request request;
    request.mutable_programs()->Assign(programs.begin(), programs.end());
    request.set_to(to);
    request.set_force(force);
    if (runc) request.set_runtime("runc");
    request.set_copy_rootfs(rootfs);
    request.set_stdio(stdio);
    request.set_copy_ahead(always ? Request::ALWAYS : never ? Request::NEVER : Request::BY_SIZE);
    request.set_max_blackout_ms(max_blackout);
    request.set_dry_run(dry_run);
    return ferry::cli::move(request, json, events);
  }
  if (*ps) return ferry::cli::ps(json, queue_pairs);
  if (*top) {
    return ferry::cli::top(std::chrono::milliseconds(std::lround(interval * 1000)), count, json);
  }
  if (*history) return ferry::cli::history(past_program, past_limit, json);
  if (*doctor) return ferry::cli::doctor::run(others, tls, json);
  if (*init) return ferry::cli::ca_init(host, ca_directory, tls);
  if (*scraping) return ferry::cli::ca_scraper(scraper, ca_directory);
  if (*add) return ferry::cli::host_add(host, ca_directory);
  if (*join) return ferry::cli::host_join(file, tls, replace);
  if (*generate) return ferry::cli::cdi_generate(libraries, output, json);
  if (*apply) return ferry::cli::cdi_apply(libraries, bundle, cdi_device);
  if (commit == abort) {
    throw ferry::Failure("resolve needs --commit or --abort; see: ferry resolve --help");
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
