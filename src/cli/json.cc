#include "cli/json.h"

#include <fmt/core.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

namespace ferry::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::ordered_json;

ordered_json value_of(const Message& message, const Reflection& reflection,
                      const FieldDescriptor* field) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL: return reflection.GetBool(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE: return reflection.GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_INT32: return reflection.GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT32: return reflection.GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64: return reflection.GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_STRING: return reflection.GetString(message, field);
    case FieldDescriptor::CPPTYPE_MESSAGE: return to_json(reflection.GetMessage(message, field));
    default: return nullptr;  // kinds that ferry.proto does not use
  }
}

}  // namespace

ordered_json to_json(const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  ordered_json result = ordered_json::object();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    if (!field->is_repeated()) {
      result[field->name()] = value_of(message, reflection, field);
      continue;
    }
    ordered_json list = ordered_json::array();
    for (int k = 0; k < reflection.FieldSize(message, field); ++k) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        list.push_back(reflection.GetRepeatedString(message, field, k));
      } else {
        list.push_back(to_json(reflection.GetRepeatedMessage(message, field, k)));
      }
    }
    result[field->name()] = std::move(list);
  }
  return result;
}

std::string id_text(std::uint64_t id) {
  return id == 0 ? std::string() : fmt::format("{:016x}", id);
}

}  // namespace ferry::cli
