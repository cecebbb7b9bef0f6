#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <optional>
#include <string>

#include "base/build_id.h"
#include "base/failure.h"

namespace ferry {

// --version: the program's name, its version, and the build id of its file.
inline void add_version(CLI::App& app, const std::string& version) {
  app.set_version_flag("--version", app.get_name() + " " + version + " (build " + build_id() + ")");
}

// Parses. Nothing: go on; else the exit status, after --help or --version was answered. Throws
// Failure, the one line that says what is wrong.
inline std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::string command = app.get_name(), what = error.what();
    const std::string first = argc > 1 ? argv[1] : "";
    const auto commands = app.get_subcommands([](CLI::App*) { return true; });
    if (std::any_of(commands.begin(), commands.end(),
                    [&](const CLI::App* candidate) { return candidate->get_name() == first; })) {
      command += " " + first;
    } else if (!commands.empty()) {
      what = "unknown command '" + first + "'";
    }
    if (what.size() > 1 && std::islower(static_cast<unsigned char>(what[1])) != 0) {
      what[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(what[0])));
    }
    throw Failure(one_line(what) + "; see: " + command + " --help");
  }
}

}  // namespace ferry
