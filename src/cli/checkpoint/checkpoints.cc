#include "cli/checkpoint/checkpoints.h"

#include <fmt/core.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/failure.h"
#include "cli/checkpoint/private_key.h"
#include "cli/text/size.h"
#include "cli/text/table.h"
#include "store/store.h"

namespace ferry::cli {
namespace {

using nlohmann::ordered_json;
using store::Manifest;
using store::Store;

std::string joined(const std::set<std::string>& names) {
  std::string all;
  for (const auto& name : names) all += (all.empty() ? "" : ", ") + printable(name);
  return all;
}

std::string hosts_of(const Manifest& manifest) {
  std::set<std::string> hosts;
  for (const auto& program : manifest.programs) hosts.insert(program.host);
  return joined(hosts);
}

std::string programs_of(const Manifest& manifest) {
  std::set<std::string> names;
  for (const auto& program : manifest.programs) names.insert(program.name);
  return joined(names);
}

std::string text_of(const std::vector<Store::Entry>& entries) {
  Table table({"ID", "MADE", "PROGRAMS", "HOSTS", "IMAGE", "STORED", "STATE"});
  for (const auto& entry : entries) {
    if (!entry.manifest) {
      table.add({entry.id, "", "", "", "", "", entry.problem});
      continue;
    }
    const Manifest& manifest = *entry.manifest;
    table.add({entry.id, printable(manifest.made), programs_of(manifest), hosts_of(manifest),
               size_text(manifest.content()), size_text(manifest.stored()),
               manifest.encryption ? "complete, encrypted" : "complete"});
  }
  return table.text();
}

ordered_json entry_json(const Store::Entry& entry) {
  const Manifest manifest = entry.manifest.value_or(Manifest());
  ordered_json programs = ordered_json::array();
  for (const auto& program : manifest.programs) {
    programs.push_back({{"name", program.name}, {"host", program.host}});
  }
  return {{"id", entry.id},
          {"made", manifest.made},
          {"version", manifest.version},
          {"complete", entry.manifest.has_value()},
          {"problem", entry.problem},
          {"encrypted", manifest.encryption.has_value()},
          {"image_bytes", manifest.content()},
          {"stored_bytes", manifest.stored()},
          {"written_bytes", manifest.written()},
          {"programs", std::move(programs)}};
}

using OwnKey = std::optional<store::PrivateKey>;

void verify(const Store& stored, const std::string& id, const OwnKey& key) {
  store::Checkpoint checkpoint = stored.open(id);
  const bool is_encrypted = checkpoint.manifest().encryption.has_value();
  if (key) checkpoint.unlock(checkpoint.content_key(*key));
  checkpoint.verify();
  fmt::print("{}: all of {} is as it was written", id, size_text(checkpoint.manifest().stored()));
  if (key) fmt::print(", by who had its content key");
  if (!key && is_encrypted) fmt::print(" by its digests alone; what is encrypted needs --key");
  fmt::print("\n");
}

}  // namespace

int checkpoints(const std::string& directory, bool json) {
  const auto entries = Store(directory).list();
  if (json) {
    ordered_json all = ordered_json::array();
    for (const auto& entry : entries) all.push_back(entry_json(entry));
    fmt::print("{}\n", ordered_json{{"checkpoints", std::move(all)}}.dump(2));
  } else if (entries.empty()) {
    fmt::print("no checkpoints in {} yet\n", printable(directory));
  } else {
    fmt::print("{}", text_of(entries));
  }
  return 0;
}

int checkpoints_verify(const std::string& directory, const std::string& id,
                       const std::string& key_file) {
  const Store stored(directory);
  OwnKey key;
  if (!key_file.empty()) key.emplace(private_key(key_file));
  if (!id.empty()) {
    verify(stored, id, key);
    return 0;
  }
  std::size_t all = 0, damaged = 0, others = 0, open = 0;
  for (const auto& entry : stored.list()) {
    if (entry.is_partial) continue;
    ++all;
    if (key && entry.manifest && !entry.manifest->encryption) {
      ++open;
      std::cerr << "ferry: " << entry.id << " is not encrypted\n";
      continue;
    }
    try {
      verify(stored, entry.id, key);
    } catch (const store::WrongKey& failure) {
      ++others;
      std::cerr << "ferry: " << failure.what() << '\n';
    } catch (const Failure& failure) {
      ++damaged;
      std::cerr << "ferry: " << failure.what() << '\n';
    }
  }
  if (damaged > 0) {
    throw Failure(
        fmt::format("{} of {} checkpoints in {} are of no use; delete with: ferry "
                    "checkpoints DIR rm ID",
                    damaged, all, printable(directory)));
  }
  if (others > 0) {
    throw Failure(fmt::format("{} of {} checkpoints in {} are encrypted for others than {}", others,
                              all, printable(directory), printable(key_file)));
  }
  if (open > 0) {
    throw Failure(
        fmt::format("{} of {} checkpoints in {} are not encrypted: verify them without --key", open,
                    all, printable(directory)));
  }
  if (all == 0) throw Failure("no checkpoints in " + printable(directory));
  return 0;
}

int checkpoints_remove(const std::string& directory, const std::string& id) {
  Store(directory).remove(id);
  return 0;
}

}  // namespace ferry::cli
