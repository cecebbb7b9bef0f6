#include "host/proc/environment.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "started.h"

namespace ferry::host {
namespace {

using test::Started;

TEST(Environment, NamesTheJobOfAProcess) {
  EXPECT_EQ(job_of(Started({"A=1", "XFERRY_JOB=no", "FERRY_JOB=lu.C@1", "SLURM_JOB_ID=7"}).pid()),
            "lu.C@1");
  EXPECT_EQ(job_of(Started({"PMIX_NAMESPACE=n", "SLURM_JOB_ID=7", "FERRY_JOBS=no"}).pid()),
            "slurm-7");
  EXPECT_EQ(job_of(Started({"FERRY_JOB=two words", "SLURM_JOB_ID=7"}).pid()), "");
  EXPECT_EQ(job_of(Started({}).pid()), "");
  EXPECT_EQ(job_of(0x7FFFFFFF), "");
}

TEST(Environment, GivesVariablesByTheirWholeName) {
  const Started process({"AB=1", "A=", "B=x=y", "C"});
  const Environment environment(process.pid());
  EXPECT_EQ(environment.get("A"), "");
  EXPECT_EQ(environment.get("AB"), "1");
  EXPECT_EQ(environment.get("B"), "x=y");
  EXPECT_EQ(environment.get("C"), std::nullopt);
  EXPECT_EQ(environment.get("x"), std::nullopt);
  EXPECT_EQ(Environment(0x7FFFFFFF).get("A"), std::nullopt);
}

TEST(Environment, IsReadUpToAMebibyte) {
  // execve(2) takes strings of up to 128 KiB.
  std::vector<std::string> variables{"FIRST=1"};
  for (int i = 0; i < 12; ++i) {
    variables.push_back("V" + std::to_string(i) + "=" + std::string(100'000, 'v'));
  }
  variables.emplace_back("LAST=1");
  const Started process(variables);
  const Environment environment(process.pid());
  EXPECT_EQ(environment.get("FIRST"), "1");
  EXPECT_EQ(environment.get("V9").value_or("").size(), 100'000u);
  EXPECT_EQ(environment.get("LAST"), std::nullopt);
}

}  // namespace
}  // namespace ferry::host
