#include "host/checkpoint/take/serve.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_text.h"
#include "ferry.grpc.pb.h"
#include "host/checkpoint/own_folder.h"
#include "host/checkpoint/take/connection_message.h"
#include "host/peers/steps.h"
#include "host/peers/this_host.h"

namespace ferry::host {
namespace {

// The key, which is in memory once after that.
std::optional<store::ContentKey> key_of(v1::CutStep& look) {
  if (look.content_key().empty()) return std::nullopt;
  const store::ContentKey key(look.content_key());
  store::wipe(look.mutable_content_key());
  return key;
}

}  // namespace

void serve_cut(const BeginCut& begin, const ThisHost& host, const grpc::ServerContext& context,
               grpc::ServerReaderWriter<v1::CutReply, v1::CutStep>& stream) {
  std::unique_ptr<LocalPart> part;
  std::optional<Watch<LocalPart>> watch;  // ends before the part
  StepOrder order;
  for (v1::CutStep step; stream.Read(&step);) {
    v1::CutReply reply;
    switch (step.kind()) {
      case v1::CutStep::LOOK:
        order.need(step.kind(), -1);
        part = begin({step.programs().begin(), step.programs().end()}, step.stop());
        watch.emplace(context, *part);
        reply.set_host(host.name);
        reply.set_version(host.version);
        for (const auto& each :
             part->look(need_own_folder(step.directory()), step.id(), step.first(), key_of(step))) {
          to_message(each, reply.add_connections());
        }
        break;
      case v1::CutStep::CHECK:
        order.need(step.kind(), v1::CutStep::LOOK);
        part->check();
        break;
      case v1::CutStep::FREEZE:
        order.need(step.kind(), v1::CutStep::CHECK);
        part->freeze();
        break;
      case v1::CutStep::DUMP:
        order.need(step.kind(), v1::CutStep::FREEZE);
        part->dump();
        break;
      case v1::CutStep::STORE:
        order.need(step.kind(), v1::CutStep::DUMP);
        for (const auto& program : part->store()) {
          reply.add_programs(json_text(to_json(program)));
        }
        break;
      case v1::CutStep::END:
        order.need(step.kind(), v1::CutStep::DUMP);
        reply.set_standstill_ms(part->end());
        break;
      default: throw Failure("malformed request");
    }
    if (!stream.Write(reply)) return;
  }
}

}  // namespace ferry::host
