// The assertions of PD Stack see a host that breaks the rules of a stream.

#include <Vpd_stack.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <verilated.h>

#include <functional>

namespace ferry::pipe {
namespace {

void clock(Vpd_stack& stack) {
  stack.clk = 0;
  stack.eval();
  stack.clk = 1;
  stack.eval();
}

// A host that is quiet after the reset, and then does what `break_rule` says in each of some cycles.
void run(const std::function<void(Vpd_stack&, int cycle)>& break_rule) {
  ::dup2(
      STDERR_FILENO,
      STDOUT_FILENO);  // where Verilator says which assertion failed, and where EXPECT_DEATH looks
  VerilatedContext context;
  Vpd_stack stack(&context);
  stack.mmio_valid = stack.read_data_valid = stack.write_response_valid = 0;
  stack.reset = 1;
  for (int cycle = 0; cycle < 4; ++cycle) clock(stack);
  stack.reset = 0;
  for (int cycle = 0; cycle < 40; ++cycle) clock(stack);
  for (int cycle = 0; cycle < 10; ++cycle) {
    break_rule(stack, cycle);
    clock(stack);
  }
}

TEST(RtlHandshakeDeathTest, AQuietHostBreaksNoRule) {
  const auto behave = [] {
    run([](Vpd_stack&, int) {});
    ::_exit(0);
  };
  EXPECT_EXIT(behave(), testing::ExitedWithCode(0), "");
}

TEST(RtlHandshakeDeathTest, DataThatNobodyAskedFor) {
  EXPECT_DEATH(
      run([](Vpd_stack& stack, int) { stack.read_data_valid = stack.read_data_error = 1; }),
      "a_asked_for");
}

TEST(RtlHandshakeDeathTest, AnAnswerToNoWrite) {
  EXPECT_DEATH(run([](Vpd_stack& stack, int) { stack.write_response_valid = 1; }), "a_expected");
}

TEST(RtlHandshakeDeathTest, RegistersWrittenBeforeTheyAreCleared) {
  EXPECT_DEATH(run([](Vpd_stack& stack, int cycle) {
                 stack.reset = cycle == 0;
                 stack.mmio_valid = 1;
               }),
               "a_host_waits");
}

}  // namespace
}  // namespace ferry::pipe
