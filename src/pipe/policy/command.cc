#include "pipe/policy/command.h"

#include <charconv>
#include <sstream>
#include <vector>

#include "base/failure.h"

namespace ferry::pipe {
namespace {

using Words = std::vector<std::string>;

template <typename Number>
std::optional<Number> number_of(const std::string& text) {
  Number number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

std::uint32_t rule_number_of(const std::string& text) {
  const auto number = number_of<std::uint32_t>(text);
  if (!number || *number == 0) {
    throw Failure("'" + printable(text) + "' is no number of a rule; see: ferry pipe ps");
  }
  return *number;
}

// "none" is 0.
std::uint64_t bytes_of(const std::string& option, const std::string& text, std::uint64_t lowest,
                       std::uint64_t highest) {
  if (text == "none") return 0;
  constexpr char kUnits[] = "KMGT";
  std::string digits = text;
  unsigned shift = 0;
  for (unsigned unit = 0; unit < 4 && !digits.empty(); ++unit) {
    if (digits.back() != kUnits[unit]) continue;
    shift = 10 * (unit + 1);
    digits.pop_back();
    break;
  }
  const auto number = number_of<std::uint64_t>(digits);
  if (!number || *number > highest >> shift || *number << shift < lowest) {
    throw Failure(option + " is none, or from " + std::to_string(lowest) + " to " +
                  std::to_string(highest) + " bytes, as 500K, 20M or 1G; not '" + printable(text) +
                  "'");
  }
  return *number << shift;
}

Prefix address_of(const std::string& text) {
  const auto prefix = prefix_of(text);
  if (!prefix) {
    throw Failure("'" + printable(text) +
                  "' is no address: 10.0.0.1, 10.0.0.0/24 (without bits behind the prefix), "
                  "fd00::1, or any");
  }
  return *prefix;
}

// TO[:PORT]
void read_destination(const std::string& text, Rule* rule) {
  std::string address = text;
  std::size_t colon = std::string::npos;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string::npos || (end + 1 < text.size() && text[end + 1] != ':')) {
      throw Failure("'" + printable(text) + "' is no address with a port: [fd00::1]:80");
    }
    address = text.substr(1, end - 1);
    if (end + 1 < text.size()) colon = end + 1;
  } else if (text.find(':') == text.rfind(':')) {  // more of them are of IPv6
    colon = text.find(':');
    address = text.substr(0, colon);
  }
  rule->to = address_of(address);
  if (colon == std::string::npos) return;
  const auto port = number_of<std::uint16_t>(text.substr(colon + 1));
  if (!port || *port == 0) throw Failure("'" + printable(text) + "' has no port from 1 to 65535");
  rule->port = *port;
}

Command rule_of(const Words& words) {
  const bool has_before = words.size() == 5 && words[3] == "--before";
  if (words.size() != 3 && !has_before) {
    throw Failure("it is " + words[0] + " FROM TO[:PORT] [--before NUMBER]; see: ferry pipe " +
                  words[0] + " --help");
  }
  Command command;
  command.kind = Command::Kind::kRule;
  command.rule.allows = words[0] == "allow";
  command.rule.from = address_of(words[1]);
  read_destination(words[2], &command.rule);
  if (has_before) command.number = rule_number_of(words[4]);
  return command;
}

Command limit_of(const Words& words) {
  if (words.size() < 4 || words.size() % 2 != 0) {
    throw Failure(
        "it is limit ADDRESS[/BITS]|any with --rate, --connection-rate or --memory; see: ferry "
        "pipe limit "
        "--help");
  }
  Command command;
  command.kind = Command::Kind::kLimit;
  command.limited = address_of(words[1]);
  for (std::size_t word = 2; word < words.size(); word += 2) {
    const std::string& option = words[word];
    if (option == "--rate") {
      command.rate = bytes_of(option, words[word + 1], kLowestRate, kHighestRate);
    } else if (option == "--connection-rate") {
      command.connection_rate = bytes_of(option, words[word + 1], kLowestRate, kHighestRate);
    } else if (option == "--memory") {
      command.memory = bytes_of(option, words[word + 1], 1, std::uint64_t{1} << 40);
    } else {
      throw Failure("'" + printable(option) + "' is no option; see: ferry pipe limit --help");
    }
  }
  return command;
}

}  // namespace

Command command_of(const std::string& line) {
  std::istringstream stream(line);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  const std::string call = words.empty() ? "" : words[0];
  if (call == "allow" || call == "deny") return rule_of(words);
  if (call == "limit") return limit_of(words);
  Command command;
  if (call == "forget" && words.size() == 2) {
    command.kind = Command::Kind::kForget;
    command.number = rule_number_of(words[1]);
    return command;
  }
  if (call == "ps" && words.size() == 1) return command;
  throw Failure("'" + printable(line) +
                "' is no command of the pipe: ps, allow, deny, forget NUMBER, limit");
}

}  // namespace ferry::pipe
