#include "function.h"

#include <cstring>
#include <thread>

#include "../carriers/failure.h"
#include "../carriers/usage.h"
#include "batches.h"

namespace nf_chain {
namespace {

using carriers::Channel;

// What has come together makes a batch; a request of which a part is missing begins the next one.
void receive(Channel& from, Batches& batches) {
  Batch* batch = batches.take_empty();
  for (std::size_t have = 0;;) {
    const std::size_t got = from.read_some(batch->bytes.data() + have, kBatch - have);
    if (got == 0) break;
    have += got;
    batch->size = whole_messages(batch->bytes.data(), have);
    if (batch->size == 0) continue;
    Batch* const next = batches.take_empty();
    have -= batch->size;
    std::memcpy(next->bytes.data(), batch->bytes.data() + batch->size, have);
    batches.put_full(batch);
    batch = next;
  }
  batches.end();
}

class Worker {
 public:
  Worker(Function& function, std::vector<Output> outputs)
      : function_(function), outputs_(std::move(outputs)) {
    std::strncpy(report_.function, function.name(), sizeof report_.function - 1);
  }

  // Until the last message is passed on.
  void run(Batches& batches) {
    Batch* batch = batches.take_full();
    const double before = carriers::processor_seconds();
    for (; batch != nullptr; batch = batches.take_full()) {
      for (std::size_t at = 0; at < batch->size;) {
        Header header;
        std::memcpy(&header, batch->bytes.data() + at, sizeof header);
        const char* const payload = batch->bytes.data() + at + sizeof header;
        at += header.size;
        if (header.kind == Header::kEnd) return end(header, payload, before);
        ++report_.requests;
        report_.passed += function_.process(header, payload, outputs_);
      }
      for (Output& output : outputs_) output.flush();
      batches.put_empty(batch);
    }
    carriers::give_up_plainly(
        "the previous function has ended before the last request; its own words say why");
  }
  const Report& report() const { return report_; }

 private:
  void end(Header header, const char* reports, double processor_before) {
    report_.processor_seconds = carriers::processor_seconds() - processor_before;
    const std::size_t size = header.size;
    header.size += sizeof report_;
    for (Output& output : outputs_) {
      char* const to = output.room(header.size);
      std::memcpy(to, &header, sizeof header);
      std::memcpy(to + sizeof header, reports, size - sizeof header);
      std::memcpy(to + size, &report_, sizeof report_);
      output.flush();
    }
  }

  Function& function_;
  std::vector<Output> outputs_;
  Report report_{};
};

}  // namespace

Report run(Function& function, carriers::Carrier& carrier, const Place& place) {
  carrier.listen(place.at, 1);
  std::vector<std::unique_ptr<Channel>> next;
  for (const std::string& where : place.to) next.push_back(carrier.connect(where, kBatch));
  const auto previous = carrier.accept(64);
  Batches batches;
  std::thread receiver([&] { receive(*previous, batches); });
  std::vector<Output> outputs;
  for (const auto& channel : next) outputs.emplace_back(*channel);
  Worker worker(function, std::move(outputs));
  worker.run(batches);
  // What the pipe has been given is on its way as long as this program is there. So those behind end first.
  char nothing = 0;
  for (const auto& channel : next) channel->read_some(&nothing, 1);
  previous->finish_sending();
  receiver.join();
  return worker.report();
}

}  // namespace nf_chain
