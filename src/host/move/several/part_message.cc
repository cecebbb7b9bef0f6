#include "host/move/several/part_message.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/failure.h"
#include "ferry.pb.h"

namespace ferry::host {

MoveOptions options_of(const v1::MoveRequest& request) {
  using Ahead = MoveOptions::Ahead;
  Ahead ahead = Ahead::kBySize;
  if (request.copy_ahead() == v1::MoveRequest::ALWAYS) ahead = Ahead::kAlways;
  if (request.copy_ahead() == v1::MoveRequest::NEVER) ahead = Ahead::kNever;
  double rate = request.ahead_rate();
  rate = rate > 0 ? std::clamp(rate, CopyLimits::kLeastRate, CopyLimits::kMostRate) : 0;
  return {.force = request.force(),
          .copy_ahead = ahead,
          .limits = {request.max_blackout_ms(), rate},
          .kind = request.runtime(),
          .to_devices = {request.to_devices().begin(), request.to_devices().end()},
          .extras = {request.copy_rootfs(), request.stdio()},
          .timeline = request.timeline()};
}

void to_message(const Others& others, v1::MovePartStep* message) {
  auto& group = *message->mutable_group();
  group.set_id(others.group);
  group.set_programs(static_cast<std::uint32_t>(others.before(others.sources.size())));
  group.set_program(static_cast<std::uint32_t>(others.before(others.here)));
  for (const auto& source : others.sources) {
    auto* added = group.add_sources();
    added->set_host(source.host);
    added->set_programs(source.programs);
  }
  message->set_resident_bytes(others.weight.resident_bytes);
  message->set_image_bytes(others.weight.image_bytes);
}

Others others_of(const v1::MovePartStep& message) {
  Others others;
  others.group = message.group().id();
  others.weight = {message.resident_bytes(), message.image_bytes()};
  others.here = static_cast<std::size_t>(message.group().sources_size());
  std::size_t programs = 0;
  for (const auto& source : message.group().sources()) {
    if (source.programs() == 0) throw Failure("malformed request");
    if (programs == message.group().program()) others.here = others.sources.size();
    others.sources.push_back({source.host(), source.programs()});
    programs += source.programs();
  }
  if (programs != message.group().programs()) throw Failure("malformed request");
  return others;
}

void to_message(const MovePart::Look& look, v1::MovePartReply* message) {
  message->set_host(look.host);
  message->mutable_programs()->Assign(look.programs.begin(), look.programs.end());
  message->mutable_move_ids()->Assign(look.move_ids.begin(), look.move_ids.end());
  message->set_resident_bytes(look.weight.resident_bytes);
  message->set_image_bytes(look.weight.image_bytes);
}

MovePart::Look look_of(const v1::MovePartReply& message) {
  MovePart::Look look;
  look.host = message.host();
  look.programs.assign(message.programs().begin(), message.programs().end());
  look.move_ids.assign(message.move_ids().begin(), message.move_ids().end());
  look.weight = {message.resident_bytes(), message.image_bytes()};
  return look;
}

void make_printable(google::protobuf::Message* message) {
  constexpr std::size_t kLongest = 300;
  using Field = google::protobuf::FieldDescriptor;
  const auto& reflection = *message->GetReflection();
  const auto clean = [](const std::string& text) {
    return printable(one_line(text.substr(0, kLongest)));
  };
  std::vector<const Field*> fields;
  reflection.ListFields(*message, &fields);
  for (const Field* field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(*message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() == Field::CPPTYPE_MESSAGE) {
        make_printable(field->is_repeated() ? reflection.MutableRepeatedMessage(message, field, i)
                                            : reflection.MutableMessage(message, field));
      } else if (field->cpp_type() == Field::CPPTYPE_STRING && field->is_repeated()) {
        reflection.SetRepeatedString(message, field, i,
                                     clean(reflection.GetRepeatedString(*message, field, i)));
      } else if (field->cpp_type() == Field::CPPTYPE_STRING) {
        reflection.SetString(message, field, clean(reflection.GetString(*message, field)));
      }
    }
  }
}

}  // namespace ferry::host
