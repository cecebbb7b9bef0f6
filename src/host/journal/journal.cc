#include "host/journal/journal.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <set>
#include <span>

#include "base/failure.h"
#include "host/peers/peer_record.h"
#include "wire/bytes.h"
#include "wire/crc32.h"

namespace ferry::host {
namespace {

constexpr unsigned kVersion = 2;  // the version of the bodies of notes
constexpr char kDigits[] = "0123456789abcdef";

// --- text

std::string hex(std::uint64_t value, int digits) {
  std::string text(static_cast<std::size_t>(digits), '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, value >>= 4) {
    *digit = kDigits[value & 15];
  }
  return text;
}

std::optional<std::uint64_t> number(const std::string& text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string sealed(std::string text) {
  const auto crc = ~wire::crc32_update(wire::kCrc32Init, std::as_bytes(std::span(text)));
  return text + ' ' + hex(crc, 8);
}

std::string encoded(const std::string& name) {
  std::string result;
  for (const unsigned char c : name) {
    if (c > ' ' && c < 0x7f && c != '%' && !(c == '-' && name.size() == 1)) {
      result += static_cast<char>(c);
    } else {
      result += '%' + hex(c, 2);
    }
  }
  return result.empty() ? "-" : result;
}

std::string decoded(const std::string& text) {
  if (text == "-") return {};
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto code = text[i] == '%' ? number(text.substr(i + 1, 2)) : std::nullopt;
    result += code ? static_cast<char>(*code) : text[i];
    if (code) i += 2;
  }
  return result;
}

std::string name_of(Side side) {
  return side == Side::kSource ? "source" : "destination";
}

const char* name_of(Decision decision) {
  switch (decision) {
    case Decision::kCommitted: return "committed";
    case Decision::kConfirmed: return "confirmed";
    default: return "aborted";
  }
}

// --- bodies

class Body {
 public:
  void put(const std::string& text) { put(std::as_bytes(std::span(text))); }
  void put(std::span<const std::byte> bytes) {
    out_.put(static_cast<std::uint32_t>(bytes.size()));
    out_.append(bytes.data(), bytes.size());
  }
  void put(const Stamp& stamp) {
    out_.put(stamp.boot);
    out_.put(static_cast<std::int64_t>(stamp.up.count()));
    out_.put(static_cast<std::int64_t>(stamp.wall.count()));
  }
  void put(const ProcessSlots& place) {
    out_.put(static_cast<std::int32_t>(place.inner_pid));
    agent::Resume sockets{false, to_parked(place.contexts)};
    for (auto& context : sockets.contexts) context.parcel.descriptors.clear();
    put(agent::encode(sockets));
  }
  void put(const HeldProcess& process) {
    out_.put(static_cast<std::int32_t>(process.pid));
    out_.put(process.started);
    out_.put(process.control_block);
    put(process.place);
  }
  void put(const Place& place) {
    out_.put(place.origin);
    out_.put(place.location);
    put(place.host);
    put(place.ferryd);
    out_.put(place.epoch);
  }
  void put(const port::Endpoint& endpoint) { out_.put(endpoint); }
  template <typename T>
  void put(const std::vector<T>& list) {
    out_.put(static_cast<std::uint32_t>(list.size()));
    for (const T& item : list) put(item);
  }
  void put(const std::vector<std::byte>& bytes) { put(std::span<const std::byte>(bytes)); }
  void put(const Held& held) {
    put(held.program);
    put(held.peer);
    put(held.netns);
    put(held.instance);
    out_.put(held.boot);
    out_.put(static_cast<std::int32_t>(held.root));
    out_.put(held.started);
    put(held.processes);
  }
  void put(const Going& going) {
    put(going.host);
    put(going.places);
  }
  std::string line(std::uint64_t move, Side side, const char* note) const {
    std::string text =
        hex(move, 16) + ' ' + name_of(side) + ' ' + note + ' ' + std::to_string(kVersion) + ' ';
    if (bytes_.empty()) text += '-';
    text.reserve(text.size() + bytes_.size() * 2 + 9);
    for (const std::byte byte : bytes_) {
      text += kDigits[static_cast<unsigned>(byte) >> 4];
      text += kDigits[static_cast<unsigned>(byte) & 15];
    }
    return sealed(std::move(text));
  }

 private:
  std::vector<std::byte> bytes_;
  wire::ByteWriter out_{&bytes_};
};

class BodyReader {
 public:
  explicit BodyReader(std::span<const std::byte> bytes) : in_(bytes) {}
  bool done() const { return in_.ok() && in_.remaining() == 0; }

  void get(std::string* text) {
    const auto bytes = in_.take(in_.get<std::uint32_t>());
    text->assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void get(Stamp* stamp) {
    stamp->boot = in_.get<std::uint64_t>();
    stamp->up = std::chrono::nanoseconds(in_.get<std::int64_t>());
    stamp->wall = std::chrono::nanoseconds(in_.get<std::int64_t>());
  }
  void get(ProcessSlots* place) {
    place->inner_pid = in_.get<std::int32_t>();
    agent::Resume sockets;
    if (!agent::parse(in_.take(in_.get<std::uint32_t>()), &sockets)) in_.fail();
    try {
      place->contexts = to_slots(std::move(sockets.contexts));
    } catch (const Failure&) {
      in_.fail();
    }
  }
  void get(HeldProcess* process) {
    process->pid = in_.get<std::int32_t>();
    process->started = in_.get<std::uint64_t>();
    process->control_block = in_.get<std::uint64_t>();
    get(&process->place);
  }
  void get(Place* place) {
    place->origin = in_.get_endpoint();
    place->location = in_.get_endpoint();
    get(&place->host);
    get(&place->ferryd);
    place->epoch = in_.get<std::uint32_t>();
  }
  void get(port::Endpoint* endpoint) { *endpoint = in_.get_endpoint(); }
  template <typename T>
  void get(std::vector<T>* list) {
    const auto count = in_.get<std::uint32_t>();
    for (std::uint32_t i = 0; i < count && in_.ok(); ++i) get(&list->emplace_back());
  }
  void get(Held* held) {
    get(&held->program);
    get(&held->peer);
    get(&held->netns);
    get(&held->instance);
    held->boot = in_.get<std::uint64_t>();
    held->root = in_.get<std::int32_t>();
    held->started = in_.get<std::uint64_t>();
    get(&held->processes);
  }
  void get(Going* going) {
    get(&going->host);
    get(&going->places);
  }

 private:
  wire::ByteReader in_;
};

template <typename T>
std::string line_of(std::uint64_t move, Side side, const char* note, const T& value) {
  Body body;
  body.put(value);
  return body.line(move, side, note);
}

template <typename T>
bool read(std::span<const std::byte> bytes, std::optional<T>* out) {
  BodyReader in(bytes);
  T value;
  in.get(&value);
  if (in.done()) *out = std::move(value);
  return in.done();
}

std::set<port::Endpoint> slots_of(const Held& held) {
  std::set<port::Endpoint> slots;
  for (const auto& process : held.processes) {
    for (const auto& context : process.place.contexts) {
      for (const auto& slot : context.slots) slots.insert(slot.local);
    }
  }
  return slots;
}

bool share_a_slot(const Held& one, const Held& other) {
  if (one.netns != other.netns) return false;
  const auto slots = slots_of(one);
  const auto others = slots_of(other);
  return std::any_of(slots.begin(), slots.end(),
                     [&](const auto& slot) { return others.contains(slot); });
}

bool share_a_process(const Held& one, const Held& other) {
  const auto is_in_other = [&](const HeldProcess& process) {
    return std::any_of(other.processes.begin(), other.processes.end(), [&](const auto& each) {
      return each.pid == process.pid && each.started == process.started;
    });
  };
  return one.boot == other.boot &&
         std::any_of(one.processes.begin(), one.processes.end(), is_in_other);
}

// Whether `entry` is over because its slots are held by `now`. Not so for a program that is nowhere
// but in its checkpoint, or of which nobody knows yet whether it goes on here: while there was no
// ferryd anybody could take its slots.
bool ends(const Held& now, const Journal::Entry& entry) {
  const bool may_come_back = entry.kept || entry.decision() == Decision::kCommitted;
  return !may_come_back || share_a_process(*entry.held, now);
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool parse_bytes(const std::string& text, std::vector<std::byte>* out) {
  if (text == "-") return true;
  if (text.size() % 2 != 0) return false;
  out->reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = digit_of(text[i]), low = digit_of(text[i + 1]);
    if (high < 0 || low < 0) return false;
    out->push_back(static_cast<std::byte>(high << 4 | low));
  }
  return true;
}

}  // namespace

std::chrono::nanoseconds age_of(const Stamp& then, const Stamp& now) {
  const std::chrono::nanoseconds none{0};
  if (then.boot == now.boot) return std::max(none, now.up - then.up);
  return std::max(now.up, now.wall - then.wall);
}

std::map<port::Endpoint, Place> origins_of(const Held& held, const Going& going,
                                           const std::string& ferryd) {
  std::map<port::Endpoint, Place> origins;
  for (const auto& process : held.processes) {
    const auto there = std::find_if(
        going.places.begin(), going.places.end(),
        [&](const ProcessSlots& place) { return place.inner_pid == process.place.inner_pid; });
    if (there == going.places.end()) continue;
    const auto& contexts = process.place.contexts;
    for (std::size_t c = 0; c < contexts.size() && c < there->contexts.size(); ++c) {
      const auto &old = contexts[c].slots, &now = there->contexts[c].slots;
      for (std::size_t s = 0; s < old.size() && s < now.size(); ++s) {
        if (!old[s].has_origin() || old[s].local != old[s].origin || now[s].local == old[s].local) {
          continue;
        }
        origins[old[s].origin] = {old[s].origin, now[s].local, going.host,
                                  ferryd,        old[s].epoch, false};
      }
    }
  }
  return origins;
}

// --- lines

std::string Journal::decision(Side side, const Record& record) {
  std::string text;
  for (const auto move : record.moves) text += (text.empty() ? "" : ",") + hex(move, 16);
  return sealed(text + ' ' + name_of(side) + ' ' + name_of(record.decision) + ' ' +
                encoded(record.program) + ' ' + encoded(record.peer));
}

std::string Journal::held(std::uint64_t move, Side side, const Held& held) {
  return line_of(move, side, "held", held);
}
std::string Journal::kept(std::uint64_t move) {
  return Body().line(move, Side::kSource, "kept");
}
std::string Journal::going(std::uint64_t move, const Going& going) {
  return line_of(move, Side::kSource, "going", going);
}
std::string Journal::since(std::uint64_t move, const Stamp& stamp) {
  return line_of(move, Side::kSource, "since", stamp);
}
std::string Journal::left(std::uint64_t move, const Stamp& stamp) {
  return line_of(move, Side::kSource, "left", stamp);
}
std::string Journal::next(std::uint64_t move, const Place& place) {
  return line_of(move, Side::kSource, "next", place);
}
std::string Journal::freed(std::uint64_t move, const port::Endpoint& origin) {
  return line_of(move, Side::kSource, "freed", origin);
}

std::string Journal::forgotten(std::uint64_t move, Side side) {
  return Body().line(move, side, "forgotten");
}

std::string Journal::over(std::uint64_t move, Side side) const {
  const Entry* entry = find(move, side);
  const auto decision = entry != nullptr ? entry->decision() : std::nullopt;
  const bool went = decision == Decision::kCommitted || decision == Decision::kConfirmed;
  // The source may ask its destination again for a commit that is on record.
  const bool is_asked = side == Side::kDestination && went;
  if (!went || (!is_asked && entry->origins.empty())) return forgotten(move, side);
  Held held;
  if (entry->held) {
    held.program = entry->held->program;
    held.peer = entry->held->peer;
    held.netns = entry->held->netns;
    held.instance = entry->held->instance;
    // The network's path may name this process.
    held.boot = entry->held->boot;
    held.root = entry->held->root;
    held.started = entry->held->started;
  }
  std::vector<Place> origins;
  for (const auto& [origin, place] : entry->origins) origins.push_back(place);
  Body body;
  body.put(held);
  body.put(origins);
  return body.line(move, side, "over");
}

// --- what they add up to

Journal::Taken Journal::take(const std::string& line) {
  const std::size_t blank = line.rfind(' ');
  if (blank == std::string::npos || sealed(line.substr(0, blank)) != line) return Taken::kNo;
  const auto fields = split(line.substr(0, blank), ' ');
  if (fields.size() != 5) return Taken::kNo;
  const auto &moves = fields[0], &side_name = fields[1], &what = fields[2], &first = fields[3],
             &second = fields[4];
  const Side side = side_name == name_of(Side::kSource) ? Side::kSource : Side::kDestination;
  for (const Decision each : {Decision::kCommitted, Decision::kConfirmed, Decision::kAborted}) {
    if (what != name_of(each)) continue;
    Record record{each, decoded(first), decoded(second), {}};
    for (const auto& id : split(moves, ',')) {
      if (const auto move = number(id)) record.moves.push_back(*move);
    }
    keep(side, record);
    return Taken::kYes;
  }
  const auto move = number(moves);
  if (!move) return Taken::kNo;
  if (first != std::to_string(kVersion)) return Taken::kOtherVersion;
  std::vector<std::byte> body;
  if (!parse_bytes(second, &body) || !take_note(*move, side, what, body))
    return Taken::kOtherVersion;
  const auto found = entries_.find({*move, side});
  if (found == entries_.end()) return Taken::kYes;
  Entry& entry = found->second;
  if (what == "over") entry.notes.clear();
  entry.notes.push_back(line);
  // An RNIC may move on for ever: only its last place is needed. (When the journal is read, the
  // decision may come later.)
  if (what == "next" && entry.over && entry.decision() == Decision::kConfirmed) {
    entry.notes = {over(*move, side)};
  }
  return Taken::kYes;
}

void Journal::keep(Side side, const Record& record) {
  for (const auto move : record.moves) {
    Entry& entry = entries_[{move, side}];
    // The program lives at the destination: no later record brings it back.
    if (entry.decision() == Decision::kConfirmed && record.decision != Decision::kConfirmed) {
      continue;
    }
    entry.record = record;
    if (record.decision == Decision::kAborted && entry.notes.empty()) entries_.erase({move, side});
  }
}

// Nobody else has the slots of `held`. A program that another entry holds in one of them has gone
// on since, or has ended: that entry is over, although this could not be written down.
void Journal::end_others_at(const Held& held, const Key& own) {
  std::vector<Key> others;
  for (const auto& [key, entry] : entries_) {
    if (key == own || entry.over || !entry.held || !share_a_slot(*entry.held, held)) continue;
    if (key.first == own.first || ends(held, entry)) others.push_back(key);
  }
  for (const auto& [move, side] : others) {
    if (side == Side::kSource) {
      entries_.erase({move, side});
    } else {
      take(over(move, side));
    }
  }
}

bool Journal::take_note(std::uint64_t move, Side side, const std::string& note,
                        const std::vector<std::byte>& body) {
  if (note == "forgotten") {
    entries_.erase({move, side});
    return body.empty();
  }
  if (note == "held") {
    std::optional<Held> held;
    if (!read(body, &held)) return false;
    end_others_at(*held, {move, side});
    Entry& entry = entries_[{move, side}];
    entry.held = std::move(held);
    entry.held_as = held_++;
    return true;
  }
  if (note == "over") {
    BodyReader in(body);
    Held held;
    std::vector<Place> origins;
    in.get(&held);
    in.get(&origins);
    if (!in.done()) return false;
    Entry& entry = entries_[{move, side}];
    entry.over = true;
    entry.held = std::move(held);
    entry.held_as = held_++;
    entry.going.reset();
    entry.since.reset();
    entry.left.reset();
    entry.origins.clear();
    for (Place& place : origins) entry.origins[place.origin] = std::move(place);
    return true;
  }
  // All other notes say more about what is held.
  const auto found = entries_.find({move, side});
  std::optional<Place> place;
  std::optional<port::Endpoint> origin;
  std::optional<Going> going;
  std::optional<Stamp> stamp;
  const bool is_known = found != entries_.end() && found->second.held;
  if (note == "kept" && body.empty()) {
    if (is_known) found->second.kept = true;
  } else if (note == "going" && read(body, &going)) {
    if (!is_known) return true;
    const std::string& peer = found->second.held->peer;
    found->second.origins = origins_of(*found->second.held, *going, parse_peer(peer).address);
    found->second.going = std::move(going);
  } else if ((note == "since" || note == "left") && read(body, &stamp)) {
    if (is_known) (note == "since" ? found->second.since : found->second.left) = stamp;
  } else if (note == "next" && read(body, &place)) {
    if (is_known && found->second.origins.contains(place->origin)) {
      found->second.origins[place->origin] = *place;
    }
  } else if (note == "freed" && read(body, &origin)) {
    if (is_known) found->second.origins.erase(*origin);
  } else {
    return false;
  }
  return true;
}

const Journal::Entry* Journal::find(std::uint64_t move, Side side) const {
  const auto found = entries_.find({move, side});
  return found == entries_.end() ? nullptr : &found->second;
}

std::string Journal::text() const {
  std::vector<std::pair<Key, const Entry*>> in_order;
  for (const auto& [key, entry] : entries_) in_order.emplace_back(key, &entry);
  std::stable_sort(in_order.begin(), in_order.end(), [](const auto& one, const auto& other) {
    return one.second->held_as < other.second->held_as;
  });
  std::string text;
  for (const auto& each : in_order) {
    const Entry& entry = *each.second;
    for (const auto& note : entry.notes) text += note + '\n';
    if (!entry.record) continue;
    // Of a group, only the moves that are still known.
    Record record = *entry.record;
    std::erase_if(record.moves, [&, side = each.first.second](const std::uint64_t move) {
      const Entry* other = find(move, side);
      return other == nullptr || !other->record ||
             other->record->decision != entry.record->decision;
    });
    text += decision(each.first.second, record) + '\n';
  }
  return text;
}

}  // namespace ferry::host
