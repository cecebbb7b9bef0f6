#include "host/units/vm/qemu_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/failure.h"
#include "host/guest/talk/lines.h"

namespace ferry::host {
namespace {

// Options are "-name" or "--name".
bool is_option(const std::string& word, const std::string& name) {
  return word == "-" + name || word == "--" + name;
}

// "virtio-net-pci,id=nic1" as {"": "virtio-net-pci", "id": "nic1"}. A comma in a value is written twice.
std::map<std::string, std::string> parsed(const std::string& text) {
  std::map<std::string, std::string> values;
  std::string piece;
  const auto add = [&] {
    const auto equals = piece.find('=');
    if (equals == std::string::npos) {
      values.emplace(values.empty() ? "" : piece, values.empty() ? piece : "on");
    } else {
      values.emplace(piece.substr(0, equals), piece.substr(equals + 1));
    }
    piece.clear();
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != ',') {
      piece += text[at];
    } else if (at + 1 < text.size() && text[at + 1] == ',') {
      piece += text[at++];
    } else {
      add();
    }
  }
  add();
  return values;
}

std::string value_of(const std::map<std::string, std::string>& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? std::string() : found->second;
}

// The value of the option `option` whose id is `id`.
std::optional<std::string> find_with_id(const std::vector<std::string>& words,
                                        const std::string& option, const std::string& id) {
  for (std::size_t at = 0; at + 1 < words.size(); ++at) {
    if (is_option(words[at], option) && value_of(parsed(words[at + 1]), "id") == id) {
      return words[at + 1];
    }
  }
  return std::nullopt;
}

// QEMU's human monitor, which plugs NICs, divides lines by blanks and quotes.
void need_plain(const std::string& option) {
  if (std::all_of(option.begin(), option.end(),
                  [](unsigned char c) { return c > ' ' && c < 0x7F && c != '"' && c != '\\'; })) {
    return;
  }
  throw Failure(fmt::format("'{}' has blanks or quotes, with which a NIC cannot be plugged",
                            printable(option)));
}

MachineNic nic_of(const std::vector<std::string>& words, const std::string& id) {
  const auto device = find_with_id(words, "device", id);
  if (!device) {
    throw Failure(fmt::format("QEMU's command has no -device with id={}, which --nic names", id));
  }
  need_plain(*device);
  const auto values = parsed(*device);
  MachineNic nic{id, *device, {}, value_of(values, "netdev"), value_of(values, "mac")};
  // A ROM would be memory of the machine, which QEMU cannot send to a machine that has no such NIC.
  if (!values.contains("romfile")) nic.device += ",romfile=";
  if (nic.mac.empty()) {
    throw Failure(fmt::format("give the NIC {} a mac=, by which its machine knows it again", id));
  }
  if (!values.contains("bus") && !values.contains("addr")) {
    throw Failure(fmt::format(
        "give the NIC {} a bus= (a pcie-root-port): the machine looks the same without it then",
        id));
  }
  if (nic.netdev_id.empty()) return nic;
  const auto netdev = find_with_id(words, "netdev", nic.netdev_id);
  if (!netdev) {
    throw Failure(fmt::format("QEMU's command has no -netdev with id={}", nic.netdev_id));
  }
  need_plain(*netdev);
  nic.netdev = *netdev;
  return nic;
}

// Without effect on what the machine looks like: the serial port is the last device.
void add_own_devices(const std::string& folder, std::vector<std::string>* words) {
  const std::vector<std::string> own{
      "-qmp",
      fmt::format("unix:{},server=on,wait=off", monitor_of(folder)),
      "-chardev",
      fmt::format("socket,id=ferry,path={},server=on,wait=off", guest_port_of(folder)),
      "-device",
      "virtio-serial-pci,id=ferry-serial",
      "-device",
      fmt::format("virtserialport,bus=ferry-serial.0,chardev=ferry,name={}", kGuestPort)};
  words->insert(words->end(), own.begin(), own.end());
}

}  // namespace

QemuCommand::QemuCommand(std::vector<std::string> words, const std::vector<std::string>& nics)
    : words_(std::move(words)) {
  if (words_.empty()) throw Failure("QEMU's command is missing");
  for (const char* option : {"S", "incoming", "daemonize", "loadvm", "preconfig"}) {
    if (std::any_of(words_.begin(), words_.end(),
                    [&](const std::string& word) { return is_option(word, option); })) {
      throw Failure(
          fmt::format("leave -{} away: Ferry starts the machine, here and elsewhere", option));
    }
  }
  for (const auto& id : nics) {
    const auto given = find_with_id(words_, "device", id);
    nics_.push_back(nic_of(words_, id));
    std::replace(words_.begin(), words_.end(), *given, nics_.back().device);
  }
}

std::vector<std::string> QemuCommand::for_start(const std::string& folder) const {
  auto words = words_;
  add_own_devices(folder, &words);
  return words;
}

std::vector<std::string> QemuCommand::for_arrival(const std::string& folder) const {
  const auto is_of_nic = [this](const std::string& option, const std::string& value) {
    return std::any_of(nics_.begin(), nics_.end(), [&](const MachineNic& nic) {
      return (is_option(option, "device") && value == nic.device) ||
             (is_option(option, "netdev") && value == nic.netdev);
    });
  };
  std::vector<std::string> words;
  for (std::size_t at = 0; at < words_.size(); ++at) {
    if (at + 1 < words_.size() && is_of_nic(words_[at], words_[at + 1])) {
      ++at;
    } else {
      words.push_back(words_[at]);
    }
  }
  add_own_devices(folder, &words);
  words.insert(words.end(), {"-S", "-incoming", "defer"});
  return words;
}

std::set<std::string> QemuCommand::files() const {
  std::set<std::string> files;
  const auto add = [&](const std::string& file) {
    if (file.starts_with('/')) files.insert(file);
  };
  for (std::size_t at = 0; at + 1 < words_.size(); ++at) {
    const auto is = [&](const char* option) { return is_option(words_[at], option); };
    const std::string& value = words_[at + 1];
    if (is("drive") || is("blockdev")) {
      const auto values = parsed(value);
      for (const char* name : {"file", "filename", "file.filename"}) add(value_of(values, name));
    } else if (is("kernel") || is("initrd") || is("bios") || is("hda") || is("hdb") ||
               is("cdrom")) {
      add(value);
    }
  }
  return files;
}

std::string monitor_of(const std::string& folder) {
  return folder + "/qmp";
}

std::string guest_port_of(const std::string& folder) {
  return folder + "/guest";
}

}  // namespace ferry::host
