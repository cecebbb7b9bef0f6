#include "driver.h"

#include <cstring>
#include <memory>
#include <thread>

#include "../carriers/failure.h"
#include "../carriers/usage.h"
#include "answers.h"

namespace nf_chain {
namespace {

using carriers::Channel;

void send(const Traffic& traffic, Channel& to) {
  for (std::size_t number = 0; number < traffic.count(); ++number) {
    std::memcpy(to.buffer(), traffic.message(number), traffic.message_size());
    to.send(traffic.message_size());
  }
  const Header end{sizeof(Header), static_cast<std::uint32_t>(traffic.count()), 0, 0, Header::kEnd};
  to.write(&end, sizeof end);
}

// What comes from one worker.
class Worker {
 public:
  explicit Worker(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}
  Channel& channel() { return *channel_; }
  const std::vector<Report>& reports() const { return reports_; }

  // Takes what has come. False: that was the last of it.
  bool receive(std::size_t number, Answers& answers) {
    const std::size_t got = channel_->read_some(bytes_.data() + have_, bytes_.size() - have_);
    if (got == 0)
      carriers::give_up_plainly(
          "a worker has ended before the last request; its own words say why");
    have_ += got;
    const std::size_t whole = whole_messages(bytes_.data(), have_);
    for (std::size_t at = 0; at < whole;) {
      Header header;
      std::memcpy(&header, bytes_.data() + at, sizeof header);
      const char* const content = bytes_.data() + at + sizeof header;
      if (header.kind == Header::kEnd) {
        reports_.resize((header.size - sizeof header) / sizeof(Report));
        std::memcpy(reports_.data(), content, reports_.size() * sizeof(Report));
        return false;
      }
      answers.take(number, header, content);
      at += header.size;
    }
    have_ -= whole;
    std::memmove(bytes_.data(), bytes_.data() + whole, have_);
    return true;
  }

 private:
  std::unique_ptr<Channel> channel_;
  std::vector<char> bytes_ = std::vector<char>(kBatch);
  std::size_t have_ = 0;
  std::vector<Report> reports_;
};

// The functions before the workers have reported by each worker.
std::vector<Report> all_reports(const std::vector<Worker>& workers) {
  std::vector<Report> all = workers[0].reports();
  for (std::size_t other = 1; other < workers.size(); ++other)
    all.push_back(workers[other].reports().back());
  return all;
}

}  // namespace

Outcome drive(carriers::Carrier& carrier, const std::string& at, const std::string& to,
              std::size_t count, const Traffic& traffic) {
  carrier.listen(at, static_cast<int>(count));
  const auto first = carrier.connect(to, traffic.message_size());
  std::vector<Worker> workers;
  const auto poller = carrier.poller();
  while (workers.size() < count) workers.emplace_back(carrier.accept(64));
  for (std::uint32_t number = 0; number < count; ++number)
    poller->add(workers[number].channel(), number, false);

  Answers answers(traffic, count);
  const double processor = carriers::processor_seconds();
  const auto start = carriers::Clock::now();
  std::thread sender([&] { send(traffic, *first); });
  for (std::size_t left = count; left > 0;) {
    for (const std::uint32_t number : poller->wait(-1)) {
      if (workers[number].receive(number, answers)) continue;
      poller->remove(workers[number].channel());
      --left;
    }
  }
  Outcome outcome{carriers::seconds_since(start), carriers::processor_seconds() - processor};
  sender.join();
  for (Worker& worker : workers) worker.channel().finish_sending();
  char nothing = 0;
  first->read_some(&nothing, 1);  // until all functions have ended
  answers.check();
  outcome.answered = answers.count();
  outcome.of_worker = answers.of_worker();
  outcome.functions = all_reports(workers);
  return outcome;
}

}  // namespace nf_chain
