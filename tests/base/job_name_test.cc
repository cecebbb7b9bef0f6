#include "base/job_name.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace ferry {
namespace {

std::string job_with(const std::map<std::string, std::string, std::less<>>& environment) {
  return job_in([&](std::string_view name) -> std::optional<std::string_view> {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt
                                      : std::optional<std::string_view>(found->second);
  });
}

TEST(JobName, HasNoBlanksCommasOrSlashes) {
  for (const std::string good : {"lu", "LU.C.16", "slurm-17", "prterun-h1-201@1", "a_b+c:d"}) {
    EXPECT_TRUE(is_job_name(good)) << good;
  }
  EXPECT_TRUE(is_job_name(std::string(128, 'a')));
  EXPECT_FALSE(is_job_name(std::string(129, 'a')));
  for (const std::string bad : {"", "two words", "a,b", "a/b", "a\n", "\xc3\xa4"}) {
    EXPECT_FALSE(is_job_name(bad)) << bad;
  }
  EXPECT_FALSE(is_job_name(std::string_view("a\0b", 3)));
}

TEST(JobName, IsTheFirstThatIsSet) {
  EXPECT_EQ(job_with({}), "");
  EXPECT_EQ(job_with({{"PMIX_NAMESPACE", "prterun-h1-201@1"}}), "pmix-prterun-h1-201@1");
  EXPECT_EQ(job_with({{"PMIX_NAMESPACE", "x"}, {"LSB_JOBID", "9"}}), "lsf-9");
  EXPECT_EQ(job_with({{"LSB_JOBID", "9"}, {"PBS_JOBID", "8.server"}}), "pbs-8.server");
  EXPECT_EQ(job_with({{"PBS_JOBID", "8"}, {"SLURM_JOB_ID", "7"}}), "slurm-7");
  EXPECT_EQ(job_with({{"SLURM_JOB_ID", "7"}, {"FERRY_JOB", "lu"}}), "lu");
}

// What has no name, or one that is none, is in no job: in none that nobody has meant.
TEST(JobName, IsNotTheNextOneWhenTheFirstIsNone) {
  EXPECT_EQ(job_with({{"SLURM_JOB_ID", "7"}, {"FERRY_JOB", ""}}), "");
  EXPECT_EQ(job_with({{"SLURM_JOB_ID", "7"}, {"FERRY_JOB", "a b"}}), "");
  EXPECT_EQ(job_with({{"PMIX_NAMESPACE", "x"}, {"SLURM_JOB_ID", ""}}), "");
}

}  // namespace
}  // namespace ferry
