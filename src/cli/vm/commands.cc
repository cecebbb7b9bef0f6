#include "cli/vm/commands.h"

#include <memory>
#include <string>
#include <vector>

#include "cli/vm/vm.h"

namespace ferry::cli {

void add_vm(CLI::App& app, Commands& commands) {
  struct Options {
    std::string name;
    std::vector<std::string> nics, command;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  auto* vm = app.add_subcommand("vm", "virtual machines of QEMU that can be moved");
  vm->require_subcommand(1);
  auto* run = vm->add_subcommand("run", "becomes QEMU, whose machine can be moved by this name");
  run->add_option("NAME", options->name, "of the machine")->required();
  run->add_option("--nic", options->nics,
                  "id of the NIC's -device, on which the machine's RDMA devices are, and which a "
                  "move unplugs; can be repeated")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false)
      ->type_name("ID");
  run->add_option("QEMU", options->command, "QEMU's command, behind --")->required();
  commands.add(run, [options]() -> int { vm_run(options->name, options->nics, options->command); });
  auto* ps = vm->add_subcommand("ps", "lists the machines of this host");
  ps->add_flag("--json", options->json, "print as JSON");
  commands.add(ps, [options] { return vm_ps(options->json); });
}

}  // namespace ferry::cli
