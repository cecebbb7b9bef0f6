#include "host/checkpoint/find/find_message.h"

#include <algorithm>
#include <limits>

#include "base/failure.h"
#include "base/job_name.h"
#include "ferry.pb.h"
#include "host/checkpoint/take/connection_message.h"
#include "port/address_text.h"

namespace ferry::host {
namespace {

// The place of a QP or a socket; `may_be_none`: of one that is not connected.
bool is_end(const v1::Connection::End& end, bool may_be_none) {
  if (end.address().empty()) return may_be_none && end.port() == 0;
  return port::parse_address(end.address()).has_value() &&
         end.port() <= std::numeric_limits<std::uint16_t>::max();
}

bool is_connection(const v1::Connection& connection) {
  const bool is_qp = connection.qpn() != 0;
  return is_end(connection.local(), is_qp) && is_end(connection.peer(), is_qp) &&
         connection.qpn() <= 0xFFFFFF;
}

bool is_program(const v1::FoundProgram& program) {
  return program.pid() > 0 && !program.name().empty() &&
         (program.job().empty() || is_job_name(program.job())) &&
         std::all_of(program.connections().begin(), program.connections().end(), is_connection);
}

bool was_asked_for(const FoundProgram& program, const Question& question) {
  const bool is_of_user = !question.user || program.user == *question.user;
  if (!question.job.empty() && program.job == question.job && is_of_user) return true;
  if (!question.program.empty()) return true;  // what has that name the other host knows
  return std::any_of(program.connections.begin(), program.connections.end(),
                     [&](const Connection& each) { return question.ends.contains(own_end(each)); });
}

}  // namespace

v1::FindRequest to_message(const Question& question) {
  v1::FindRequest message;
  message.set_job(question.job);
  if (question.user) message.set_user(*question.user);
  message.set_program(question.program);
  for (const auto& [own, peer] : question.ends) {
    if (peer == Connection::End()) {
      to_message(own, message.add_qps());
    } else {
      auto& connection = *message.add_tcp();
      to_message(own, connection.mutable_local());
      to_message(peer, connection.mutable_peer());
    }
  }
  return message;
}

Question from_message(const v1::FindRequest& message) {
  Question question;
  question.job = message.job();
  if (message.has_user()) question.user = message.user();
  question.program = message.program();
  bool is_good = question.job.empty() || is_job_name(question.job);
  for (const auto& end : message.qps()) {
    is_good &= is_end(end, false);
    question.ends.insert({from_message(end), {}});
  }
  for (const auto& connection : message.tcp()) {
    is_good &= connection.qpn() == 0 && is_connection(connection);
    question.ends.insert(own_end(from_message(connection)));
  }
  if (!is_good) throw Failure("malformed request");
  return question;
}

void to_message(const FoundProgram& program, v1::FoundProgram* message) {
  message->set_pid(program.pid);
  message->set_name(program.name);
  message->set_job(program.job);
  message->set_user(program.user);
  for (const auto& each : program.connections) to_message(each, message->add_connections());
}

std::vector<FoundProgram> from_message(const v1::FindReply& message, const Question& question) {
  std::vector<FoundProgram> programs;
  for (const auto& each : message.programs()) {
    if (!is_program(each)) throw Failure("a malformed program");
    FoundProgram program{each.pid(), printable(each.name()), each.job(), each.user(), {}};
    for (const auto& one : each.connections()) {
      program.connections.push_back(from_message(one));
      program.connections.back().program = program.name;
    }
    if (!was_asked_for(program, question)) {
      throw Failure("'" + program.name + "', for which nobody has asked");
    }
    programs.push_back(std::move(program));
  }
  return programs;
}

}  // namespace ferry::host
